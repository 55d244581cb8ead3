// The gated delta rule of a prompt, and of the next token of several sequences, at the heads of
// Qwen3-Next-80B-A3B.

#include <benchmark/benchmark.h>

#include <vector>

#include "inputs.h"
#include "kernels/ops.h"

namespace klotski::bench {
namespace {

void gated_delta_rule(benchmark::State& state) {
  DeltaRule rule{.key_heads = 16, .value_heads = 32, .key_dim = 128, .value_dim = 128};
  rule.log_decay = next_weights(DType::BF16, 1, rule.value_heads);
  rule.step_bias = next_weights(DType::BF16, 1, rule.value_heads);
  const int64_t sequences = state.range(0);
  const int64_t tokens = state.range(1);
  Activations mixed(sequences * tokens, rule.mixed_width());
  Activations rates(sequences * tokens, 2 * rule.value_heads);
  Activations out(sequences * tokens, rule.value_width());
  Activations states(2 * sequences, rule.state_numbers());  // each sequence's two versions
  std::vector<DeltaRuleArguments> arguments;
  for (int64_t s = 0; s < sequences; ++s) {
    arguments.push_back({.out = out.rows(s * tokens, tokens),
                         .mixed = mixed.rows(s * tokens, tokens),
                         .rates = rates.rows(s * tokens, tokens),
                         .state = states.rows().row(2 * s),
                         .next_state = states.rows().row(2 * s + 1)});
  }
  for (auto _ : state) {
    processor().gated_delta_rule(arguments, rule);
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * sequences * tokens);
  state.SetBytesProcessed(state.iterations() * sequences * rule.state_numbers() * 8);
}
BENCHMARK(gated_delta_rule)
    ->ArgNames({"sequences", "tokens"})
    ->Args({1, 1})
    ->Args({16, 1})
    ->Args({1, 512})
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace klotski::bench
