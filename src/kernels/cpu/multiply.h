#pragma once

// Products over rows wherever they lie, used by matmul, experts and attention.

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "kernels/cpu/cpu_processor.h"
#include "kernels/cpu/formats.h"
#include "tensor/format.h"

namespace klotski::cpu {

// The way to multiply by weights of this type.
const Products& products_for(const Kernels& kernels, WeightType type, Precision precision);

// Memory of a thread that stays with it from call to call; growing it loses its contents. Each use
// has a memory of its own, so that one may be held while another is asked for.
enum class ScratchUse { inputs, gated, strip, rows, expanded, rounding, count_ };
std::byte* scratch(ScratchUse use, int64_t bytes);

inline int64_t blocks_of(int64_t rows) { return (rows + kBlockRows - 1) / kBlockRows; }

// The rows of blocks first .. last - 1.
template <typename Row>
std::span<Row> rows_of_blocks(std::span<Row> rows, int64_t first, int64_t last) {
  const auto begin = static_cast<size_t>(first * kBlockRows);
  return rows.subspan(begin, std::min(static_cast<size_t>(last * kBlockRows), rows.size()) - begin);
}

// Pointers to rows [first, first + count) of some activations, or of the rows that `chosen` names.
std::vector<const float*> row_pointers(ConstRows rows, std::span<const int32_t> chosen,
                                       int64_t first, int64_t count);
std::vector<float*> row_pointers(Rows rows, std::span<const int32_t> chosen, int64_t first,
                                 int64_t count);

// Packs columns begin .. end - 1 of some rows of `width`, from whose element `begin` on the
// pointers show, into the blocks that begin at `blocks`.
void pack_rows(const Products& products, std::byte* blocks, std::span<const float* const> rows,
               int64_t width, int64_t begin, int64_t end);

// A matrix of weights: whole rows of it one after the other, or some columns of such rows.
struct WeightMatrix {
  const TensorView* view;  // outlives this
  const FormatKernel* format;
  const std::byte* data;
  WeightType type;  // type of the numbers that rows are multiplied as
  int64_t outputs;
  int64_t width;
  int64_t row_bytes;  // bytes from one row to the next
  bool arranged;
  int64_t header_bytes;  // 0: rows are plain
  int64_t first_column;

  // `rounded`: rounds_inputs() of the products that will read it.
  WeightMatrix(const TensorView& matrix, bool rounded)
      : view(&matrix),
        format(&format_kernel(matrix.dtype, rounded)),
        data(matrix.data),
        type(format->type),
        outputs(matrix.rows()),
        width(matrix.columns()),
        row_bytes(matrix.stride()),
        arranged(matrix.order == ElementOrder::arranged),
        header_bytes(format->plain ? 0 : format_of(matrix.dtype).header(matrix.columns_of_row())),
        first_column(matrix.first_column) {}

  // Arranged: the first of a group.
  const std::byte* row(int64_t n) const { return data + n * row_bytes; }
};

// Strip::next of a strip of `now` that rows of `then` follow. Null for rows that are expanded,
// which are read before their strip begins.
inline const std::byte* next_rows(const Products& products, const WeightMatrix& now,
                                  const WeightMatrix& then, int64_t row) {
  const bool alike = now.format == then.format || (now.format->plain && then.format->plain);
  return alike && then.format->reads_stored(products) ? then.row(row) : nullptr;
}

// Refuses (internal) weights in an order that these products do not read. Rows that lie apart are
// never arranged.
void check_order(const Products& products, const WeightMatrix& weight);

// Outputs first .. first + count - 1 of some rows, put at out[r][out_offset] and after.
struct StripOutputs {
  std::span<float* const> out;
  int64_t out_offset;
  int64_t first;
  int64_t count;
};
// Multiplies the rows packed in `blocks`. Weights that these products do not read as they are
// stored are expanded first, to a thread's scratch. `next`: Strip::next.
void multiply(const Machine& with, const Products& products, const StripOutputs& outputs,
              const std::byte* blocks, const WeightMatrix& weight, const std::byte* next = nullptr);

// How many outputs a strip of a product should have, a multiple of kColumnStep: as many as it may
// while threads do not wait long for the last one. Few rows gain nothing from a large one.
int64_t strip_outputs(const Machine& with, const Products& products, const WeightMatrix& weight,
                      int64_t rows);

}  // namespace klotski::cpu
