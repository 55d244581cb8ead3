#include "report.h"

#include "peak.h"

namespace klotski::bench {

void report(benchmark::State& state, const Work& work) {
  const auto add = [&](const char* name, double each) {
    state.counters[name] = benchmark::Counter(each, benchmark::Counter::kIsIterationInvariantRate);
  };
  const double operations = work.f32_operations + work.bf16_operations;
  add("GFLOP/s", operations * 1e-9);
  add("%peak", 100.0 * (work.f32_operations / peak().f32.all_threads +
                        work.bf16_operations / peak().bf16.all_threads));
  add("GB/s", work.bytes * 1e-9);
  add("%bandwidth", 100.0 * work.bytes / peak().read.all_threads);
}

}  // namespace klotski::bench
