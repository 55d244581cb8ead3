#include <algorithm>
#include <cmath>

#include "kernels/cpu/cpu_processor.h"
#include "kernels/reference/weight_row.h"

namespace klotski::cpu {

namespace {

template <typename R>
R rows_of(R rows, int64_t begin, int64_t end) {
  return {rows.row(begin), end - begin, rows.width};
}

}  // namespace

void CpuProcessor::rms_norm(Rows out, ConstRows in, const TensorView& weight, float epsilon) const {
  const Machine with = machine();
  const int64_t width = weight.data ? weight.shape.back() : in.width;
  std::vector<float> scale(static_cast<size_t>(width), 1.0f);
  if (weight.data) reference::load_row(weight, 0, scale);
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

void CpuProcessor::combine(Rows out, ConstRows slots_in, std::span<const float> weights) const {
  const Machine with = machine();
  const int64_t slots = slots_in.count / std::max<int64_t>(out.count, 1);
  share_out(with, out.count, out.width * slots, [&](int64_t begin, int64_t end) {
    ReferenceProcessor::combine(rows_of(out, begin, end),
                                rows_of(slots_in, begin * slots, end * slots),
                                weights.subspan(static_cast<size_t>(begin * slots),
                                                static_cast<size_t>((end - begin) * slots)));
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
