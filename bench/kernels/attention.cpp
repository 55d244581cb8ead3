// Attention of a prompt, and of the next token of several sequences.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <vector>

#include "inputs.h"
#include "kernels/ops.h"
#include "report.h"

namespace klotski::bench {
namespace {

constexpr int64_t kQueryHeads = 16;
constexpr int64_t kKvHeads = 4;
constexpr int64_t kHeadDim = 128;
constexpr int64_t kPageTokens = 16;

// The tokens of one call: the last `tokens` ones of each sequence of `positions`.
struct Call {
  int64_t sequences;
  int64_t tokens;
  int64_t positions;
  DType type;

  double kv_bytes() const {
    return static_cast<double>(sequences * positions * kKvHeads * kHeadDim * 2 *
                               bytes_per_element(type));
  }
  // Pairs of a token and a position it sees, times the operations to score (or to mix) one.
  double operations() const {
    const int64_t seen = tokens * positions - tokens * (tokens - 1) / 2;
    return 2.0 * static_cast<double>(sequences * seen * kQueryHeads * kHeadDim);
  }
};

using Pages = std::vector<const std::byte*>;

Pages next_pages(const Call& call) {
  Pages pages;
  for (int64_t p = 0; p < call.positions; p += kPageTokens) {
    pages.push_back(next_weights(call.type, kPageTokens, kKvHeads * kHeadDim).data);
  }
  return pages;
}

void attention(benchmark::State& state, const Call& call) {
  constexpr int64_t kWidth = kQueryHeads * kHeadDim;
  const Precision precision = call.type == DType::BF16 ? Precision::bf16 : Precision::f32;
  Activations queries(call.sequences * call.tokens, kWidth);
  Activations out(call.sequences * call.tokens, kWidth);
  // Caches used in turn, enough that none is still in the processor's cache when its turn comes.
  const auto memory = static_cast<double>(random_memory().size());
  const auto copies = std::max<int64_t>(static_cast<int64_t>(memory / call.kv_bytes()), 1);
  std::vector<Pages> pages;
  for (int64_t i = 0; i < 2 * copies * call.sequences; ++i) pages.push_back(next_pages(call));
  int64_t copy = 0;
  std::vector<AttentionArguments> sequences;
  for (auto _ : state) {
    sequences.clear();
    for (int64_t s = 0; s < call.sequences; ++s) {
      const auto at = static_cast<size_t>(2 * (copy * call.sequences + s));
      sequences.push_back({.output = out.rows(s * call.tokens, call.tokens),
                           .queries = queries.rows(s * call.tokens, call.tokens),
                           .query_heads = kQueryHeads,
                           .kv_heads = kKvHeads,
                           .cache = {pages[at], pages[at + 1], call.type, kPageTokens},
                           .first_position = call.positions - call.tokens,
                           .scale = 0.1f,
                           .window = 0,
                           .sinks = {},
                           .precision = precision});
    }
    processor().attention(sequences);
    copy = (copy + 1) % copies;
    benchmark::ClobberMemory();
  }
  Work work{.bytes = call.kv_bytes()};
  work.add_products(call.operations(), call.type, precision);  // scores
  work.f32_operations += call.operations();                    // values mixed by their shares
  report(state, work);
}

void attention_prefill(benchmark::State& state, DType type) {
  attention(state,
            {.sequences = 1, .tokens = state.range(0), .positions = state.range(0), .type = type});
}

void attention_decode(benchmark::State& state, DType type) {
  attention(state,
            {.sequences = state.range(0), .tokens = 1, .positions = state.range(1), .type = type});
}

void prompts(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"tokens"})->UseRealTime()->Unit(benchmark::kMillisecond);
  for (const int tokens : {512, 2048}) benchmark->Args({tokens});
}

void next_tokens(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"sequences", "positions"})->UseRealTime()->Unit(benchmark::kMillisecond);
  benchmark->ArgsProduct({{1, 32}, {512, 4096}});
}

BENCHMARK_CAPTURE(attention_prefill, kv_f32, DType::F32)->Apply(prompts);
BENCHMARK_CAPTURE(attention_prefill, kv_bf16, DType::BF16)->Apply(prompts);
BENCHMARK_CAPTURE(attention_decode, kv_f32, DType::F32)->Apply(next_tokens);
BENCHMARK_CAPTURE(attention_decode, kv_bf16, DType::BF16)->Apply(next_tokens);

}  // namespace
}  // namespace klotski::bench
