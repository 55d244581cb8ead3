#pragma once

// The inner loops, compiled once for each instruction set. The files in cpu/isa/ include this
// header and nothing that defines inline functions others share: the linker keeps one copy of such
// a function, and it might be the one with instructions this processor does not have.

#include <cstdint>

namespace klotski::cpu {

enum class WeightType { f32, f16, bf16 };

// Some outputs of a product: out[r][n] = sum over k of in[r][k] * weight[n][k], begin <= n < end.
struct MatmulPanel {
  float* out;  // [rows][out_width]
  const float* in;
  const void* weight;  // [out_width][in_width]
  WeightType type;
  int64_t rows;
  int64_t in_width;
  int64_t out_width;
  int64_t begin;
  int64_t end;
};

// How many outputs a panel may have: what fits the first-level cache beside the inputs.
inline constexpr int64_t kPanelOutputs = 16;

// Positions whose keys and values lie one after the other, `stride` floats apart.
struct KvRun {
  const float* keys;
  const float* values;
  int64_t count;
};

// One token and the query heads that share a key-value head.
struct HeadGroup {
  float* output;         // [heads][head_dim]
  const float* queries;  // [heads][head_dim]
  int64_t heads;
  int64_t head_dim;
  const KvRun* runs;  // what the token sees, oldest first
  int64_t run_count;
  int64_t head_offset;  // from a run's pointers to the key-value head
  int64_t stride;
  int64_t positions;   // in all runs
  float scale;         // on the scores
  const float* sinks;  // [heads] or null
  float* scores;       // [heads][positions], scratch
};

struct Kernels {
  const char* name;
  void (*matmul_panel)(const MatmulPanel& panel);
  void (*attend)(const HeadGroup& group);
};

// The fastest that this processor can run.
const Kernels& kernels();

// Every one that this processor can run, the plainest first: all are tested.
struct KernelList {
  const Kernels* const* begin;
  int count;
};
KernelList all_kernels();

}  // namespace klotski::cpu
