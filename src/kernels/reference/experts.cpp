#include <algorithm>
#include <vector>

#include "kernels/reference/reference_processor.h"

namespace klotski::reference {

namespace {

constexpr int64_t kBlockRows = 64;  // rows at a time: the scratch stays small

int64_t row_at(std::span<const int32_t> rows, int64_t i) {
  return rows.empty() ? i : rows[static_cast<size_t>(i)];
}

void run_block(const ReferenceProcessor& with, const ExpertProduct& product, int64_t first,
               int64_t count, Precision precision) {
  const int64_t width = product.gate.rows();
  std::vector<float> in(static_cast<size_t>(count * product.in.width));
  std::vector<float> gated(static_cast<size_t>(count * width));
  std::vector<float> up(gated.size());
  std::vector<float> out(static_cast<size_t>(count * product.out.width));
  for (int64_t i = 0; i < count; ++i) {
    std::copy_n(product.in.row(row_at(product.in_rows, first + i)), product.in.width,
                in.data() + i * product.in.width);
  }
  if (!product.in_scales.empty()) {
    with.scale_rows({in.data(), count, product.in.width},
                    product.in_scales.subspan(static_cast<size_t>(first)));
  }
  const Rows gated_rows = {gated.data(), count, width};
  const Rows up_rows = {up.data(), count, width};
  const ConstRows in_rows = {in.data(), count, product.in.width};
  with.matmul(gated_rows, in_rows, product.gate, product.gate_bias, precision);
  if (product.gated()) {
    with.matmul(up_rows, in_rows, product.up, product.up_bias, precision);
  } else {
    std::fill(up.begin(), up.end(), 1.0f);
  }
  gate(gated_rows, up_rows, product.activation, product.swiglu);
  with.matmul({out.data(), count, product.out.width}, gated_rows, product.down, product.down_bias,
              precision);
  for (int64_t i = 0; i < count; ++i) {
    std::copy_n(out.data() + i * product.out.width, product.out.width,
                product.out.row(row_at(product.out_rows, first + i)));
  }
}

}  // namespace

void ReferenceProcessor::experts(std::span<const ExpertProduct> products,
                                 Precision precision) const {
  for (const ExpertProduct& product : products) {
    for (int64_t first = 0; first < product.rows(); first += kBlockRows) {
      run_block(*this, product, first, std::min(kBlockRows, product.rows() - first), precision);
    }
  }
}

// The rows of a block on their way through an expert, and a product's inputs as they are
// multiplied.
uint64_t ReferenceProcessor::scratch_bytes(const MostWork& most) const {
  const int64_t block = kBlockRows * 3 * (most.in_width + most.expert_width);
  const int64_t rounded = most.rows * std::max(most.in_width, most.expert_width);
  return static_cast<uint64_t>(block + rounded) * sizeof(float);
}

uint64_t ReferenceProcessor::expansion_bytes(const MostWork&, Precision,
                                             std::span<const DType>) const {
  return 0;
}

ElementOrder ReferenceProcessor::arrange(std::byte*, DType, const Shape&, Precision) const {
  return ElementOrder::rows;
}

}  // namespace klotski::reference
