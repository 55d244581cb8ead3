#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/cpu/cpu_processor.h"
#include "kernels/reference/weight_row.h"

namespace klotski::cpu {

namespace {

template <typename R>
R rows_of(R rows, int64_t begin, int64_t end) {
  return {rows.row(begin), end - begin, rows.width};
}

// The sum of a row, in an order that no instruction set changes.
float sum_of(const float* values, int64_t count) {
  constexpr int64_t kChains = 16;  // sums side by side, which compilers keep in vectors
  std::array<float, kChains> sums{};
  for (int64_t i = 0; i < count; ++i) sums[static_cast<size_t>(i % kChains)] += values[i];
  float sum = 0.0f;
  for (const float of_chain : sums) sum += of_chain;
  return sum;
}

}  // namespace

void CpuProcessor::rms_norm(Rows out, ConstRows in, const TensorView& weight, float epsilon,
                            float offset) const {
  const Machine with = machine();
  const int64_t width = weight.data ? weight.shape.back() : in.width;
  std::vector<float> scale(static_cast<size_t>(width), 1.0f);
  if (weight.data) {
    reference::load_row(weight, 0, scale);
    for (float& value : scale) value += offset;
  }
  share_out(with, out.count, width, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const float mean = with.kernels.sum_of_squares(in.row(r), width) / static_cast<float>(width);
      const float factor = 1.0f / std::sqrt(mean + epsilon);
      for (int64_t c = 0; c < width; ++c) {
        out.row(r)[c] = in.row(r)[c] * factor * scale[static_cast<size_t>(c)];
      }
    }
  });
}

void CpuProcessor::layer_norm(Rows out, ConstRows in, const TensorView& weight,
                              const TensorView& bias, float epsilon) const {
  const Machine with = machine();
  const auto columns = static_cast<size_t>(in.width);
  const auto width = static_cast<float>(in.width);
  std::vector<float> scale(columns);
  std::vector<float> added(columns, 0.0f);
  reference::load_row(weight, 0, scale);
  if (bias.data != nullptr) reference::load_row(bias, 0, added);
  share_out(with, out.count, out.width, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      float* row = out.row(r);
      const float mean = sum_of(in.row(r), in.width) / width;
      for (int64_t c = 0; c < in.width; ++c) row[c] = in.row(r)[c] - mean;
      const float variance = with.kernels.sum_of_squares(row, in.width) / width;
      const float factor = 1.0f / std::sqrt(variance + epsilon);
      for (size_t c = 0; c < columns; ++c) row[c] = row[c] * factor * scale[c] + added[c];
    }
  });
}

void CpuProcessor::combine(Rows out, ConstRows results, std::span<const float> weights) const {
  const Machine with = machine();
  const int64_t top_k = results.count / std::max<int64_t>(out.count, 1);
  share_out(with, out.count, out.width * top_k, [&](int64_t begin, int64_t end) {
    ReferenceProcessor::combine(rows_of(out, begin, end),
                                rows_of(results, begin * top_k, end * top_k),
                                weights.subspan(static_cast<size_t>(begin * top_k),
                                                static_cast<size_t>((end - begin) * top_k)));
  });
}

void CpuProcessor::most_likely(std::span<TokenId> tokens, ConstRows logits) const {
  const Machine with = machine();
  share_out(with, logits.count, logits.width, [&](int64_t begin, int64_t end) {
    ReferenceProcessor::most_likely(
        tokens.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)),
        rows_of(logits, begin, end));
  });
}

}  // namespace klotski::cpu
