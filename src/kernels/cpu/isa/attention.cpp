#include <math.h>

#include "kernels/cpu/isa/kernels_isa.h"
#include "kernels/cpu/isa/tile.h"

namespace klotski::cpu::KLOTSKI_ISA {

namespace {

// Scores of `kRows` heads from `head` on with the `count` keys of a run.
template <int kRows>
void score_run(const HeadGroup& group, int64_t head, const float* keys, int64_t count,
               float* scores) {
  const float* queries = group.queries + head * group.head_dim;
  const auto put = [&](int64_t p, const auto& sums, int outputs) __attribute__((always_inline)) {
    for (int r = 0; r < kRows; ++r) {
      for (int n = 0; n < outputs; ++n) {
        scores[r * group.positions + p + n] = sums[r][n] * group.scale;
      }
    }
  };
  int64_t p = 0;
  for (; p + kTileOutputs <= count; p += kTileOutputs) {
    float sums[kRows][kTileOutputs];
    tile(sums, queries, group.head_dim, keys + p * group.stride, group.stride, group.head_dim);
    put(p, sums, kTileOutputs);
  }
  for (; p < count; ++p) {
    float sums[kRows][1];
    tile(sums, queries, group.head_dim, keys + p * group.stride, group.stride, group.head_dim);
    put(p, sums, 1);
  }
}

// Scores become their softmax; a sink joins the denominator and nothing else.
void softmax(float* scores, int64_t count, const float* sink) {
  float largest = sink ? *sink : scores[0];
  for (int64_t i = 0; i < count; ++i) largest = scores[i] > largest ? scores[i] : largest;
  float total = sink ? expf(*sink - largest) : 0.0f;
  for (int64_t i = 0; i < count; ++i) {
    scores[i] = expf(scores[i] - largest);
    total += scores[i];
  }
  for (int64_t i = 0; i < count; ++i) scores[i] /= total;
}

// Outputs of `kRows` heads from dimension `d` on, `kVectors` vectors of them: the values of all
// positions, oldest first, each by its share. `at` and `put` load and store one vector.
template <int kRows, int kVectors, typename At, typename Put>
KLOTSKI_INLINE void mix(const HeadGroup& group, int64_t head, int64_t d, const At& at,
                        const Put& put) {
  Vector mixed[kRows][kVectors] = {};
  const float* shares = group.scores + head * group.positions;
  for (int64_t run = 0; run < group.run_count; ++run) {
    const float* values = group.runs[run].values + group.head_offset + d;
    for (int64_t p = 0; p < group.runs[run].count; ++p, ++shares, values += group.stride) {
      for (int v = 0; v < kVectors; ++v) {
        const Vector value = at(values + v * kLanes);
        for (int r = 0; r < kRows; ++r) {
          mixed[r][v] = multiply_add(mixed[r][v], value, Vector{} + shares[r * group.positions]);
        }
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    float* out = group.output + (head + r) * group.head_dim + d;
    for (int v = 0; v < kVectors; ++v) put(out + v * kLanes, mixed[r][v]);
  }
}

// All dimensions of `kRows` heads.
template <int kRows>
void mix_values(const HeadGroup& group, int64_t head) {
  constexpr int kVectors = kTileOutputs;
  const auto at = [](const float* data) { return load(data); };
  const auto put = [](float* data, Vector value) { store(data, value); };
  int64_t d = 0;
  for (; d + kVectors * kLanes <= group.head_dim; d += kVectors * kLanes) {
    mix<kRows, kVectors>(group, head, d, at, put);
  }
  for (; d + kLanes <= group.head_dim; d += kLanes) mix<kRows, 1>(group, head, d, at, put);
  const int64_t left = group.head_dim - d;
  if (left == 0) return;
  mix<kRows, 1>(
      group, head, d, [left](const float* data) { return load(data, left); },
      [left](float* data, Vector value) { store(data, value, left); });
}

template <int kRows>
void attend_heads(const HeadGroup& group, int64_t head) {
  float* scores = group.scores + head * group.positions;
  int64_t position = 0;
  for (int64_t run = 0; run < group.run_count; ++run) {
    score_run<kRows>(group, head, group.runs[run].keys + group.head_offset, group.runs[run].count,
                     scores + position);
    position += group.runs[run].count;
  }
  for (int r = 0; r < kRows; ++r) {
    softmax(scores + r * group.positions, group.positions,
            group.sinks ? group.sinks + head + r : nullptr);
  }
  mix_values<kRows>(group, head);
}

}  // namespace

void attend(const HeadGroup& group) {
  int64_t head = 0;
  for (; head + 4 <= group.heads; head += 4) attend_heads<4>(group, head);
  for (; head < group.heads; ++head) attend_heads<1>(group, head);
}

}  // namespace klotski::cpu::KLOTSKI_ISA
