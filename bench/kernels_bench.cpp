// Speed of the kernels at shapes of real models: GFLOP/s, and GB/s of weights read.

#include <benchmark/benchmark.h>

#include <random>
#include <vector>

#include "base/cpu_limit.h"
#include "base/thread_pool.h"
#include "kernels/ops.h"
#include "tensor/half.h"

namespace klotski {
namespace {

std::vector<float> random_floats(int64_t count) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

// Arguments: rows, in_width, out_width. Weights come in turn from a set that no cache holds.
void matmul_bf16(benchmark::State& state) {
  const int64_t rows = state.range(0);
  const int64_t in_width = state.range(1);
  const int64_t out_width = state.range(2);
  const int64_t weight_bytes = in_width * out_width * 2;
  const int64_t copies = 1 + (int64_t{256} << 20) / weight_bytes;
  const std::vector<uint16_t> weights(static_cast<size_t>(copies * in_width * out_width), 0x3C01);
  const std::vector<float> in = random_floats(rows * in_width);
  std::vector<float> out(static_cast<size_t>(rows * out_width));
  int64_t copy = 0;
  for (auto _ : state) {
    const TensorView weight{
        reinterpret_cast<const std::byte*>(weights.data()) + copy * weight_bytes,
        DType::BF16,
        {out_width, in_width}};
    cpu_ops().matmul({out.data(), rows, out_width}, {in.data(), rows, in_width}, weight, {},
                     Precision::bf16);
    copy = (copy + 1) % copies;
    benchmark::ClobberMemory();
  }
  const auto runs = static_cast<double>(state.iterations());
  state.counters["GFLOP/s"] = benchmark::Counter(
      runs * 2e-9 * static_cast<double>(rows * in_width * out_width), benchmark::Counter::kIsRate);
  state.counters["GB/s"] = benchmark::Counter(runs * 1e-9 * static_cast<double>(weight_bytes),
                                              benchmark::Counter::kIsRate);
}
BENCHMARK(matmul_bf16)
    ->ArgsProduct({{1, 2, 3, 4, 6, 8, 16, 32, 48, 64, 128, 512}, {7168}, {2048}})
    ->Args({64, 2048, 7168})
    ->Args({1, 2048, 7168})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

// Arguments: positions, query heads, key-value heads; one token.
void attention_of_one_token(benchmark::State& state) {
  constexpr int64_t kHeadDim = 128;
  constexpr int64_t kPage = 16;
  const int64_t positions = state.range(0);
  const int64_t heads = state.range(1);
  const int64_t kv_heads = state.range(2);
  const std::vector<float> keys = random_floats(positions * kv_heads * kHeadDim);
  const std::vector<float> queries = random_floats(heads * kHeadDim);
  std::vector<float> out(static_cast<size_t>(heads * kHeadDim));
  std::vector<const std::byte*> pages;
  for (int64_t p = 0; p < positions; p += kPage) {
    pages.push_back(reinterpret_cast<const std::byte*>(keys.data() + p * kv_heads * kHeadDim));
  }
  for (auto _ : state) {
    const AttentionArguments arguments{.output = {out.data(), 1, heads * kHeadDim},
                         .queries = {queries.data(), 1, heads * kHeadDim},
                         .query_heads = heads,
                         .kv_heads = kv_heads,
                         .cache = {pages, pages, DType::F32, kPage},
                         .first_position = positions - 1,
                         .scale = 0.1f,
                         .window = 0,
                         .sinks = {}};
    cpu_ops().attention(std::span(&arguments, 1));
    benchmark::ClobberMemory();
  }
  state.counters["GFLOP/s"] =
      benchmark::Counter(static_cast<double>(state.iterations()) * 4e-9 *
                             static_cast<double>(positions * heads * kHeadDim),
                         benchmark::Counter::kIsRate);
}
BENCHMARK(attention_of_one_token)
    ->Args({64, 32, 8})
    ->Args({1024, 32, 8})
    ->Args({1024, 16, 16})
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);

void empty_parallel_for(benchmark::State& state) {
  ThreadPool pool(usable_cpus());
  for (auto _ : state) pool.parallel_for(pool.threads(), [](int64_t, int64_t) {});
}
BENCHMARK(empty_parallel_for)->UseRealTime()->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace klotski
