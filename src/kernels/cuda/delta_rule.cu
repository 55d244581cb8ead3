// The gated delta rule. Columns of a state are independent of each other: a warp has 32 of them,
// each thread one, in registers where the number of keys is a usual one, and reads the keys and
// queries of one token after the other.

#include <vector>

#include "kernels/cuda/context_cuda.h"
#include "kernels/cuda/row_runs_cuda.h"
#include "kernels/cuda/stored_vector_cuda.h"
#include "kernels/cuda/warp_cuda.h"

namespace klotski::cuda {

namespace {

constexpr float kLengthEpsilon = 1e-6f;  // added to squared lengths of queries and keys
constexpr int64_t kRunRows = 4;          // rows that a block prepares

struct DeltaRows {
  float* out;
  float* mixed;
  float* rates;
  const float* state;  // or null
  float* next_state;
  int64_t tokens;
};

struct DeltaTask {
  const DeltaRows* sequences;
  const RowRun* runs;
  StoredVector log_decay;
  StoredVector step_bias;
  int64_t key_heads;
  int64_t value_heads;
  int64_t key_dim;
  int64_t value_dim;

  __device__ int64_t key_width() const { return key_heads * key_dim; }
  __device__ int64_t mixed_width() const { return 2 * key_width() + value_heads * value_dim; }
};

// A warp scales one vector to a length.
__device__ __forceinline__ void scale_to(float* vector, int64_t size, float length) {
  float squares = 0.0f;
  for (int64_t i = threadIdx.x % kWarp; i < size; i += kWarp) {
    squares = fmaf(vector[i], vector[i], squares);
  }
  const float factor = length / sqrtf(warp_sum(squares) + kLengthEpsilon);
  for (int64_t i = threadIdx.x % kWarp; i < size; i += kWarp) vector[i] *= factor;
}

// Brings queries, keys and rates of a run of rows to the numbers that the rule computes with: a
// warp a vector, a thread a head's rates.
__global__ void prepare_rows(DeltaTask task) {
  const RowRun run = task.runs[blockIdx.x];
  const DeltaRows sequence = task.sequences[run.sequence];
  const float query_length = 1.0f / sqrtf(static_cast<float>(task.key_dim));
  const int64_t vectors = 2 * task.key_heads;  // of a row: queries, then keys
  for (int64_t i = threadIdx.x / kWarp; i < run.count * vectors; i += kThreads / kWarp) {
    const int64_t vector = i % vectors;
    scale_to(
        sequence.mixed + (run.first + i / vectors) * task.mixed_width() + vector * task.key_dim,
        task.key_dim, vector < task.key_heads ? query_length : 1.0f);
  }
  for (int64_t i = threadIdx.x; i < run.count * task.value_heads; i += kThreads) {
    const int64_t head = i % task.value_heads;
    float* rates = sequence.rates + (run.first + i / task.value_heads) * 2 * task.value_heads;
    rates[head] = 1.0f / (1.0f + expf(-rates[head]));
    float& step = rates[task.value_heads + head];
    const float biased = step + task.step_bias[head];
    const float softplus = biased > 20.0f ? biased : log1pf(expf(biased));
    step = expf(-expf(task.log_decay[head]) * softplus);
  }
}

// The parts of a token's rows that one value head reads and writes.
struct TokenHead {
  const float* query;
  const float* key;
  const float* values;
  float update;
  float decay;
  float* out;
};

__device__ __forceinline__ TokenHead token_head(const DeltaTask& task, const DeltaRows& sequence,
                                                int64_t token, int64_t head) {
  const float* row = sequence.mixed + token * task.mixed_width();
  const float* rates = sequence.rates + token * 2 * task.value_heads;
  const int64_t key_head = head / (task.value_heads / task.key_heads);
  return {row + key_head * task.key_dim,
          row + task.key_width() + key_head * task.key_dim,
          row + 2 * task.key_width() + head * task.value_dim,
          rates[head],
          rates[task.value_heads + head],
          sequence.out + (token * task.value_heads + head) * task.value_dim};
}

// A value head of a sequence, and the column of its state that a thread has: block (x, y) has 32
// columns of a head of sequence y, the columns of a head in neighbouring blocks.
struct OwnColumn {
  int64_t head;
  int64_t column;
};
__device__ __forceinline__ OwnColumn own_column(const DeltaTask& task) {
  const int64_t tiles = (task.value_dim + kWarp - 1) / kWarp;
  return {blockIdx.x / tiles, blockIdx.x % tiles * kWarp + threadIdx.x};
}

// A state of kKeys rows stays in registers; the next token's numbers are on their way while one
// token is computed.
template <int kKeys>
__global__ void __launch_bounds__(kWarp) update_in_registers(DeltaTask task) {
  constexpr int kEach = kKeys / static_cast<int>(kWarp);  // keys that a thread loads
  constexpr int kChains = 4;                              // sums side by side
  __shared__ float key[kKeys];
  __shared__ float query[kKeys];
  const DeltaRows sequence = task.sequences[blockIdx.y];
  const OwnColumn own = own_column(task);
  const int64_t head = own.head;
  const int64_t column = own.column;
  const bool mine = column < task.value_dim;
  const int64_t first = head * kKeys * task.value_dim + column;

  float state[kKeys];
#pragma unroll
  for (int i = 0; i < kKeys; ++i) {
    state[i] = mine && sequence.state ? sequence.state[first + i * task.value_dim] : 0.0f;
  }
  float next_key[kEach];
  float next_query[kEach];
  float next_value = 0.0f;
  const auto fetch = [&](const TokenHead& from) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      next_key[i] = from.key[i * kWarp + threadIdx.x];
      next_query[i] = from.query[i * kWarp + threadIdx.x];
    }
    next_value = mine ? from.values[column] : 0.0f;
  };
  TokenHead here = token_head(task, sequence, 0, head);
  fetch(here);
  for (int64_t token = 0; token < sequence.tokens; ++token) {
    __syncwarp();  // the token before has been read
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      key[i * kWarp + threadIdx.x] = next_key[i];
      query[i * kWarp + threadIdx.x] = next_query[i];
    }
    __syncwarp();
    const float value = next_value;
    const TokenHead now = here;
    if (token + 1 < sequence.tokens) {
      here = token_head(task, sequence, token + 1, head);
      fetch(here);
    }
    float recalled[kChains] = {};
#pragma unroll
    for (int i = 0; i < kKeys; ++i) {
      state[i] *= now.decay;
      recalled[i % kChains] = fmaf(state[i], key[i], recalled[i % kChains]);
    }
    const float delta =
        (value - ((recalled[0] + recalled[1]) + (recalled[2] + recalled[3]))) * now.update;
    float sums[kChains] = {};
#pragma unroll
    for (int i = 0; i < kKeys; ++i) {
      state[i] = fmaf(key[i], delta, state[i]);
      sums[i % kChains] = fmaf(state[i], query[i], sums[i % kChains]);
    }
    if (mine) now.out[column] = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  }
  if (!mine) return;
#pragma unroll
  for (int i = 0; i < kKeys; ++i) sequence.next_state[first + i * task.value_dim] = state[i];
}

// update_in_registers() for any number of keys: the state stays in memory.
__global__ void __launch_bounds__(kWarp) update_in_memory(DeltaTask task) {
  const DeltaRows sequence = task.sequences[blockIdx.y];
  const OwnColumn own = own_column(task);
  const int64_t head = own.head;
  const int64_t column = own.column;
  if (column >= task.value_dim) return;
  const int64_t first = head * task.key_dim * task.value_dim + column;
  float* state = sequence.next_state + first;
  for (int64_t i = 0; i < task.key_dim; ++i) {
    state[i * task.value_dim] = sequence.state ? sequence.state[first + i * task.value_dim] : 0.0f;
  }
  for (int64_t token = 0; token < sequence.tokens; ++token) {
    const TokenHead now = token_head(task, sequence, token, head);
    float recalled = 0.0f;
    for (int64_t i = 0; i < task.key_dim; ++i) {
      recalled = fmaf(state[i * task.value_dim] * now.decay, now.key[i], recalled);
    }
    const float delta = (now.values[column] - recalled) * now.update;
    float sum = 0.0f;
    for (int64_t i = 0; i < task.key_dim; ++i) {
      const float updated = fmaf(now.key[i], delta, state[i * task.value_dim] * now.decay);
      state[i * task.value_dim] = updated;
      sum = fmaf(updated, now.query[i], sum);
    }
    now.out[column] = sum;
  }
}

using UpdateKernel = void (*)(DeltaTask);
UpdateKernel update_kernel(int64_t key_dim) {
  switch (key_dim) {
    case 32:
      return update_in_registers<32>;
    case 64:
      return update_in_registers<64>;
    case 128:
      return update_in_registers<128>;
    default:
      return update_in_memory;
  }
}

}  // namespace

void CudaProcessor::gated_delta_rule(std::span<const DeltaRuleArguments> sequences,
                                     const DeltaRule& rule) const {
  if (sequences.empty()) return;
  const Context& with = context();
  std::vector<DeltaRows> rows;
  for (const DeltaRuleArguments& one : sequences) {
    rows.push_back(
        {one.out.data, one.mixed.data, one.rates.data, one.state, one.next_state, one.mixed.count});
  }
  const std::vector<RowRun> runs = row_runs(std::span<const DeltaRows>(rows), kRunRows,
                                            [](const auto& one) { return one.tokens; });
  const Uploaded<DeltaRows> uploaded(with, std::span<const DeltaRows>(rows));
  const Uploaded<RowRun> uploaded_runs(with, std::span<const RowRun>(runs));
  const DeltaTask task = {uploaded.data(),
                          uploaded_runs.data(),
                          stored_vector(rule.log_decay),
                          stored_vector(rule.step_bias),
                          rule.key_heads,
                          rule.value_heads,
                          rule.key_dim,
                          rule.value_dim};
  prepare_rows<<<static_cast<unsigned>(runs.size()), kThreads, 0, with.stream>>>(task);
  check_launch("prepare_rows");
  const auto heads = static_cast<unsigned>(rule.value_heads);
  const dim3 grid(blocks_of(rule.value_dim, kWarp) * heads, static_cast<unsigned>(rows.size()));
  update_kernel(rule.key_dim)<<<grid, kWarp, 0, with.stream>>>(task);
  check_launch("update_state");
}

}  // namespace klotski::cuda
