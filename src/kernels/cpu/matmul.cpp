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

// The remainder of every element of a row after rounding to bf16.
void remainder_of(float* out, const float* row, int64_t width) {
  for (int64_t k = 0; k < width; ++k) {
    const float rounded = rounded_to_bf16(row[k]);
    out[k] = std::isfinite(rounded) ? row[k] - rounded : 0.0f;
  }
}

// Up to kStripRows rows of a product. Inputs in two parts are twice as many rows, added up at the
// end: the weights are read once for both.
class Slab {
 public:
  Slab(const Machine& with, Rows out, ConstRows in, const WeightMatrix& weight,
       const Products& products, int64_t parts)
      : with_(with),
        weight_(weight),
        products_(products),
        parts_(parts),
        in_(row_pointers(in, {}, 0, in.count)),
        out_(row_pointers(out, {}, 0, out.count)),
        blocks_(scratch(ScratchUse::inputs,
                        blocks_of(parts * in.count) * products.block_bytes(in.width))) {}

  void run(const TensorView& bias) {
    const int64_t rows = parts_ * std::ssize(in_);
    share_out(with_, blocks_of(rows), kBlockRows * weight_.width, [&](int64_t first, int64_t last) {
      for (int64_t block = first; block < last; ++block) pack(block);
    });
    const int64_t width = strip_outputs(with_, products_, weight_, rows);
    const int64_t strips = (weight_.outputs + width - 1) / width;
    share_out(with_, strips, rows * weight_.width * width, [&](int64_t first, int64_t last) {
      for (int64_t strip = first; strip < last; ++strip) {
        const int64_t begin = strip * width;
        const int64_t count = std::min(width, weight_.outputs - begin);
        if (parts_ == 1) {
          const std::byte* next =
              strip + 1 < last ? next_rows(products_, weight_, weight_, begin + count) : nullptr;
          multiply(with_, products_, {out_, begin, begin, count}, blocks_, weight_, next);
        } else {
          multiply_both(begin, count);
        }
        if (bias.data) add_bias(out_, bias, begin, count);
      }
    });
  }

 private:
  // One block. Second parts come after all first ones.
  void pack(int64_t block) {
    const int64_t width = weight_.width;
    const auto rows = std::ssize(in_);
    auto* remainders = reinterpret_cast<float*>(
        scratch(ScratchUse::rows, kBlockRows * width * static_cast<int64_t>(sizeof(float))));
    const float* pointers[kBlockRows];
    const int64_t first = block * kBlockRows;
    const int64_t count = std::min(kBlockRows, parts_ * rows - first);
    for (int64_t r = 0; r < count; ++r) {
      const float* row = in_[static_cast<size_t>((first + r) % rows)];
      if (first + r >= rows) {
        float* remainder = remainders + r * width;
        remainder_of(remainder, row, width);
        row = remainder;
      }
      pointers[r] = row;
    }
    pack_rows(products_, blocks_ + block * products_.block_bytes(width),
              std::span(pointers, static_cast<size_t>(count)), width, 0, width);
  }

  void multiply_both(int64_t begin, int64_t count) {
    auto* sums = reinterpret_cast<float*>(scratch(
        ScratchUse::rows, 2 * std::ssize(out_) * count * static_cast<int64_t>(sizeof(float))));
    std::vector<float*> rows(2 * out_.size());
    for (size_t r = 0; r < rows.size(); ++r) rows[r] = sums + static_cast<int64_t>(r) * count;
    multiply(with_, products_, {rows, 0, begin, count}, blocks_, weight_);
    for (size_t r = 0; r < out_.size(); ++r) {
      const float* second = rows[out_.size() + r];
      for (int64_t n = 0; n < count; ++n) out_[r][begin + n] = rows[r][n] + second[n];
    }
  }

  const Machine& with_;
  const WeightMatrix& weight_;
  const Products& products_;
  int64_t parts_;
  std::vector<const float*> in_;
  std::vector<float*> out_;
  std::byte* blocks_;
};

}  // namespace

void CpuProcessor::matmul(Rows out, ConstRows in, const TensorView& weight, const TensorView& bias,
                          Precision precision) const {
  const Machine with = machine();
  const WeightMatrix matrix(weight, rounds_inputs(with.kernels, precision));
  const Products& products = products_for(with.kernels, matrix.type, precision);
  check_order(products, matrix);
  const bool two_parts = precision == Precision::two_bf16 && &products == with.kernels.bf16;
  const int64_t parts = two_parts ? 2 : 1;
  const int64_t most = kStripRows / parts;
  for (int64_t first = 0; first < in.count; first += most) {
    const int64_t rows = std::min(most, in.count - first);
    Slab(with, {out.row(first), rows, out.width}, {in.row(first), rows, in.width}, matrix, products,
         parts)
        .run(bias);
  }
}

}  // namespace klotski::cpu
