// A product with one matrix, at the shapes of large models' layers.

#include <benchmark/benchmark.h>

#include "inputs.h"
#include "kernels/ops.h"
#include "report.h"

namespace klotski::bench {
namespace {

void matmul(benchmark::State& state, DType type, Precision precision) {
  const int64_t rows = state.range(0);
  const int64_t in_width = state.range(1);
  const int64_t out_width = state.range(2);
  Activations in(rows, in_width);
  Activations out(rows, out_width);
  for (auto _ : state) {
    const TensorView weight = next_weights(type, out_width, in_width);
    processor().matmul(out.rows(), in.rows(), weight, {}, precision);
    benchmark::ClobberMemory();
  }
  const auto elements = static_cast<double>(in_width * out_width);
  Work work{.bytes = elements * static_cast<double>(bytes_per_element(type))};
  work.add_products(2.0 * static_cast<double>(rows) * elements, type, precision);
  report(state, work);
}

void every_shape(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"rows", "in", "out"})->UseRealTime()->Unit(benchmark::kMillisecond);
  for (const auto& [in, out] :
       {std::pair(7168, 2048), {2048, 7168}, {4096, 14336}, {14336, 4096}}) {
    for (const int rows : {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 2048}) {
      benchmark->Args({rows, in, out});
    }
  }
}

void few_shapes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"rows", "in", "out"})->UseRealTime()->Unit(benchmark::kMillisecond);
  for (const int rows : {1, 16, 512}) benchmark->Args({rows, 7168, 2048});
}

BENCHMARK_CAPTURE(matmul, bf16, DType::BF16, Precision::bf16)->Apply(every_shape);
BENCHMARK_CAPTURE(matmul, bf16_as_f32, DType::BF16, Precision::f32)->Apply(every_shape);
BENCHMARK_CAPTURE(matmul, f16, DType::F16, Precision::f32)->Apply(few_shapes);
BENCHMARK_CAPTURE(matmul, f32, DType::F32, Precision::f32)->Apply(few_shapes);

}  // namespace
}  // namespace klotski::bench
