// Operations that go row by row, and the cost of sharing out any loop.

#include <benchmark/benchmark.h>

#include <numeric>
#include <vector>

#include "inputs.h"
#include "kernels/ops.h"

namespace klotski::bench {
namespace {

void tokens(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"tokens"})->UseRealTime()->Unit(benchmark::kMicrosecond);
  for (const int count : {1, 32, 512}) benchmark->Args({count});
}

// Activations stay in the caches, as between the operations of a layer.
void rms_norm(benchmark::State& state) {
  constexpr int64_t kWidth = 4096;
  Activations in(state.range(0), kWidth);
  Activations out(state.range(0), kWidth);
  const TensorView weight{next_weights(DType::BF16, 1, kWidth).data, DType::BF16, {kWidth}};
  for (auto _ : state) {
    processor().rms_norm(out.rows(), in.rows(), weight, 1e-6f);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * state.range(0) * kWidth * 8);  // read and written
}
BENCHMARK(rms_norm)->Apply(tokens);

void rope(benchmark::State& state) {
  constexpr int64_t kHeads = 16;
  constexpr int64_t kHeadDim = 128;
  Activations heads(state.range(0), kHeads * kHeadDim);
  std::vector<int32_t> positions(static_cast<size_t>(state.range(0)));
  std::iota(positions.begin(), positions.end(), 1000);
  std::vector<float> frequencies(kHeadDim / 2);
  float frequency = 1.0f;
  for (float& f : frequencies) f = frequency *= 0.87f;  // about 10000^(-1/64)
  for (auto _ : state) {
    processor().rope({.heads = heads.rows(),
                      .head_dim = kHeadDim,
                      .positions = positions,
                      .frequencies = frequencies});
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * state.range(0) * kHeads * kHeadDim * 8);
}
BENCHMARK(rope)->Apply(tokens);

// 128 experts, 8 of which are chosen.
void route(benchmark::State& state) {
  constexpr int64_t kExperts = 128;
  const RouterRule rule{.top_k = 8, .renormalise = true};
  Activations logits(state.range(0), kExperts);
  std::vector<ExpertId> chosen(static_cast<size_t>(state.range(0) * rule.top_k));
  std::vector<float> weights(chosen.size());
  for (auto _ : state) {
    processor().route({.logits = logits.rows(),
                       .selection_bias = {},
                       .rule = rule,
                       .experts = chosen,
                       .weights = weights});
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(route)->Apply(tokens);

void empty_parallel_for(benchmark::State& state) {
  ThreadPool& pool = processor().machine().pool;
  for (auto _ : state) pool.parallel_for(pool.threads(), [](int64_t, int64_t) {});
}
BENCHMARK(empty_parallel_for)->UseRealTime()->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace klotski::bench
