#pragma once

// The steps of experts between their products: rows fetched, gated and put where they belong.

#include <cstdint>
#include <span>

#include "kernels/cuda/context_cuda.h"
#include "kernels/ops.h"

namespace klotski::cuda {

// Rows of one expert that are computed together.
struct ExpertPiece {
  ExpertPiece(const ExpertProduct& whole, int64_t first_row, int64_t rows)
      : product(&whole), first(first_row), count(rows), computed(rows) {}

  bool scattered() const { return !product->out_rows.empty(); }
  float* straight_out() const { return product->out.row(first); }  // unless scattered

  const ExpertProduct* product;
  int64_t first;
  int64_t count;
  int64_t computed;  // rows, `count` or more; those beyond repeat the last and are not written
};

// The products of an expert, each of which may have a bias.
enum class ExpertBias { gate, up, down, count_ };
inline constexpr size_t kExpertBiases = static_cast<size_t>(ExpertBias::count_);

// A piece for kernels, as rows of the batch that it is computed in.
struct ExpertSegment {
  int64_t begin;                      // the first row's place in the batch
  int64_t count;                      // rows; more places until the next segment are padding
  const float* in;                    // row 0 of the lists, or the first row where there is no list
  const int32_t* in_rows;             // list from the first row on, or null
  float* out;                         // row 0, where there is a list
  const int32_t* out_rows;            // list from the first row on; null: rows are in place already
  const float* scales;                // factors of input rows from the first row on, or null
  const void* biases[kExpertBiases];  // by ExpertBias; all null where the expert has none
};

// Pieces one after the other, of products alike in widths.
class ExpertBatchRows {
 public:
  ExpertBatchRows(const Context& with, std::span<const ExpertPiece> pieces);

  int64_t rows() const { return rows_; }  // computed
  bool any_scattered() const { return any_scattered_; }

  // packed = the input rows, scaled where they are to be; Stored is float, __half or
  // __nv_bfloat16.
  template <typename Stored>
  void fetch(Stored* packed) const;
  // Adds each piece's bias of a product to its rows of `packed`, where the pieces have biases.
  void add_biases(float* packed, ExpertBias of) const;
  // Output rows = packed, of the pieces that are scattered.
  void scatter(const float* packed) const;

 private:
  const Context& with_;
  int64_t rows_ = 0;
  int64_t in_width_;
  int64_t out_width_;
  int64_t expert_width_;
  DType bias_type_;
  bool any_bias_;
  bool in_aligned_;
  bool out_aligned_;
  bool any_scattered_ = false;
  int segment_count_;
  Uploaded<ExpertSegment> segments_;
};

// out = the product's activation of gate and up; out may be gate, up is null where there is none
template <typename Stored>
void activate(const Context& with, Stored* out, const float* gate, const float* up, int64_t count,
              const ExpertProduct& product);

}  // namespace klotski::cuda
