// Several experts of a layer: in one call, one by one, and in one call with weights that were
// arranged before.

#include <benchmark/benchmark.h>

#include <vector>

#include "inputs.h"
#include "kernels/ops.h"
#include "report.h"

namespace klotski::bench {
namespace {

enum class Calls { together, one_by_one, arranged };

// The order that an expert's matrices have once they are arranged.
ElementOrder arranged_order(int64_t rows, int64_t columns) {
  std::vector<std::byte> copy(static_cast<size_t>(2 * rows * columns));
  return processor().arrange(copy.data(), DType::BF16, {rows, columns}, Precision::bf16);
}

void experts(benchmark::State& state, Calls calls) {
  constexpr int64_t kExperts = 8;
  const int64_t rows = state.range(0);
  const int64_t hidden = state.range(1);
  const int64_t width = state.range(2);
  Activations in(kExperts * rows, hidden);
  Activations out(kExperts * rows, hidden);
  // Random numbers are random in any order.
  const ElementOrder order =
      calls == Calls::arranged ? arranged_order(width, hidden) : ElementOrder::rows;
  const auto weights = [&](int64_t outputs, int64_t inputs) {
    TensorView view = next_weights(DType::BF16, outputs, inputs);
    view.order = order;
    return view;
  };
  std::vector<ExpertProduct> products;
  for (auto _ : state) {
    products.clear();
    for (int64_t e = 0; e < kExperts; ++e) {
      products.push_back({.out = out.rows(e * rows, rows),
                          .in = in.rows(e * rows, rows),
                          .out_rows = {},
                          .in_rows = {},
                          .gate = weights(width, hidden),
                          .up = weights(width, hidden),
                          .down = weights(hidden, width)});
    }
    if (calls == Calls::one_by_one) {
      for (const ExpertProduct& product : products) {
        processor().experts({&product, 1}, Precision::bf16);
      }
    } else {
      processor().experts(products, Precision::bf16);
    }
    benchmark::ClobberMemory();
  }
  const auto elements = static_cast<double>(3 * kExperts * hidden * width);
  Work work{.bytes = 2.0 * elements};
  work.add_products(2.0 * static_cast<double>(rows) * elements, DType::BF16, Precision::bf16);
  report(state, work);
}

// Small shapes; rows are those of each expert.
void small_shapes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"rows", "hidden", "width"})->UseRealTime()->Unit(benchmark::kMillisecond);
  for (const int rows : {1, 2, 4, 8, 32, 128}) benchmark->Args({rows, 2048, 768});
}

void every_shape(benchmark::internal::Benchmark* benchmark) {
  small_shapes(benchmark);
  for (const int rows : {4, 6, 8, 10, 12, 16, 24}) benchmark->Args({rows, 2048, 7168});
  for (const int rows : {1, 8, 32, 64, 128, 256}) benchmark->Args({rows, 4096, 14336});
}

BENCHMARK_CAPTURE(experts, together, Calls::together)->Apply(every_shape);
BENCHMARK_CAPTURE(experts, arranged, Calls::arranged)->Apply(every_shape);
BENCHMARK_CAPTURE(experts, one_by_one, Calls::one_by_one)->Apply(small_shapes);

}  // namespace
}  // namespace klotski::bench
