#include <algorithm>
#include <cmath>

#include "kernels/cpu/multiply.h"
#include "kernels/reference/weight_row.h"
#include "tensor/half.h"

namespace klotski::cpu {

namespace {

void add_bias(std::span<float* const> out, const TensorView& bias, int64_t first, int64_t count) {
  for (int64_t n = 0; n < count; ++n) {
    const float offset = reference::load_element(bias, first + n);
    for (float* row : out) row[first + n] += offset;
  }
}

// What rounding to bf16 takes from every element of a row.
void remainder_of(float* out, const float* row, int64_t width) {
  for (int64_t k = 0; k < width; ++k) {
    const float rounded = rounded_to_bf16(row[k]);
    out[k] = std::isfinite(rounded) ? row[k] - rounded : 0.0f;
  }
}

// Up to kStripRows rows of a product. Inputs in two parts are two products, added up.
class Slab {
 public:
  Slab(const Machine& with, Rows out, ConstRows in, const WeightMatrix& weight, Precision precision)
      : with_(with),
        weight_(weight),
        products_(products_for(with.kernels, weight.type, precision)),
        two_parts_(precision == Precision::two_bf16 && &products_ == with.kernels.bf16),
        in_(row_pointers(in, {}, 0, in.count)),
        out_(row_pointers(out, {}, 0, out.count)),
        part_bytes_(blocks_of(in.count) * products_.block_bytes(in.width)),
        blocks_(scratch(ScratchUse::inputs, part_bytes_ * (two_parts_ ? 2 : 1))) {}

  void run(const TensorView& bias) {
    const auto rows = static_cast<int64_t>(in_.size());
    share_out(with_, blocks_of(rows), kBlockRows * weight_.width, [&](int64_t first, int64_t last) {
      for (int64_t block = first; block < last; ++block) pack(block);
    });
    const int64_t width = strip_outputs(with_, weight_.outputs);
    const int64_t strips = (weight_.outputs + width - 1) / width;
    share_out(with_, strips, rows * weight_.width * width, [&](int64_t first, int64_t last) {
      for (int64_t strip = first; strip < last; ++strip) {
        const int64_t begin = strip * width;
        const int64_t count = std::min(width, weight_.outputs - begin);
        products_.multiply(strip_of({out_, begin, begin, count}, blocks_, weight_));
        if (two_parts_) add_second_part(begin, count);
        if (bias.data) add_bias(out_, bias, begin, count);
      }
    });
  }

 private:
  // One block.
  void pack(int64_t block) {
    const int64_t width = weight_.width;
    const auto rows = rows_of_blocks(std::span(in_), block, block + 1);
    std::byte* to = blocks_ + block * products_.block_bytes(width);
    pack_rows(products_, to, rows, width, 0, width);
    if (!two_parts_) return;
    auto* remainders = reinterpret_cast<float*>(
        scratch(ScratchUse::rows, kBlockRows * width * static_cast<int64_t>(sizeof(float))));
    const float* pointers[kBlockRows];
    for (size_t r = 0; r < rows.size(); ++r) {
      float* remainder = remainders + static_cast<int64_t>(r) * width;
      remainder_of(remainder, rows[r], width);
      pointers[r] = remainder;
    }
    pack_rows(products_, to + part_bytes_, std::span(pointers, rows.size()), width, 0, width);
  }

  // The weights are in the cache still.
  void add_second_part(int64_t begin, int64_t count) {
    auto* sums = reinterpret_cast<float*>(
        scratch(ScratchUse::rows, std::ssize(out_) * count * static_cast<int64_t>(sizeof(float))));
    std::vector<float*> rows(out_.size());
    for (size_t r = 0; r < rows.size(); ++r) rows[r] = sums + static_cast<int64_t>(r) * count;
    products_.multiply(strip_of({rows, 0, begin, count}, blocks_ + part_bytes_, weight_));
    for (size_t r = 0; r < rows.size(); ++r) {
      for (int64_t n = 0; n < count; ++n) out_[r][begin + n] += rows[r][n];
    }
  }

  const Machine& with_;
  const WeightMatrix& weight_;
  const Products& products_;
  bool two_parts_;
  std::vector<const float*> in_;
  std::vector<float*> out_;
  int64_t part_bytes_;  // of the packed inputs
  std::byte* blocks_;   // all rows, then all of their second parts
};

}  // namespace

void matmul(const Machine& with, Rows out, ConstRows in, const TensorView& weight,
            const TensorView& bias, Precision precision) {
  const WeightMatrix matrix(weight);
  for (int64_t first = 0; first < in.count; first += kStripRows) {
    const int64_t rows = std::min(kStripRows, in.count - first);
    Slab(with, {out.row(first), rows, out.width}, {in.row(first), rows, in.width}, matrix,
         precision)
        .run(bias);
  }
}

}  // namespace klotski::cpu
