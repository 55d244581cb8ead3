#include <algorithm>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/reference/reference_ops.h"

namespace klotski::cpu {

namespace {

constexpr int64_t kElementCost = 8;  // multiplications that take as long as an element here

template <typename R>
R rows_of(R rows, int64_t begin, int64_t end) {
  return {rows.row(begin), end - begin, rows.width};
}

}  // namespace

void rms_norm(const Machine& with, Rows out, ConstRows in, const TensorView& weight,
              float epsilon) {
  share_out(with, out.count, out.width * kElementCost, [&](int64_t begin, int64_t end) {
    reference::rms_norm(rows_of(out, begin, end), rows_of(in, begin, end), weight, epsilon);
  });
}

void gate(const Machine& with, Rows gate, ConstRows up, Activation activation) {
  // Every element is on its own, so even a single row can be shared out.
  const Rows all = {gate.data, gate.count * gate.width, 1};
  const ConstRows all_up = {up.data, up.count * up.width, 1};
  share_out(with, all.count, kElementCost, [&](int64_t begin, int64_t end) {
    reference::gate(rows_of(all, begin, end), rows_of(all_up, begin, end), activation);
  });
}

void combine(const Machine& with, Rows out, ConstRows slots_in, std::span<const float> weights) {
  const int64_t slots = slots_in.count / std::max<int64_t>(out.count, 1);
  share_out(with, out.count, out.width * slots, [&](int64_t begin, int64_t end) {
    reference::combine(rows_of(out, begin, end), rows_of(slots_in, begin * slots, end * slots),
                       weights.subspan(static_cast<size_t>(begin * slots),
                                       static_cast<size_t>((end - begin) * slots)));
  });
}

}  // namespace klotski::cpu
