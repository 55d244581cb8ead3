// Bytes of text per second through encode and decode, one thread, one call per whole file.

#include <benchmark/benchmark.h>

#include <filesystem>

#include "text/gzip.h"
#include "text/tokenizer.h"

namespace klotski {
namespace {

const std::filesystem::path kData = KLOTSKI_TEST_DATA;

std::string read_text(const std::string& name) {
  return read_text_or_gzip(kData / "text" / (name + ".txt.gz"), uint64_t{64} << 20);
}

void set_rate(benchmark::State& state, size_t bytes) {
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * static_cast<int64_t>(bytes));
}

void encode(benchmark::State& state, const std::string& name, const std::string& file) {
  const Tokenizer tokenizer = Tokenizer::load(kData / "tokenizers" / name);
  const std::string text = read_text(file);
  for (auto _ : state) benchmark::DoNotOptimize(tokenizer.encode(text, {}));
  set_rate(state, text.size());
}

void decode(benchmark::State& state, const std::string& name, const std::string& file) {
  const Tokenizer tokenizer = Tokenizer::load(kData / "tokenizers" / name);
  const std::string text = read_text(file);
  const auto ids = tokenizer.encode(text, {});
  for (auto _ : state) benchmark::DoNotOptimize(tokenizer.decode(ids));
  set_rate(state, text.size());
}

BENCHMARK_CAPTURE(encode, mixtral_prose, "mixtral-8x7b", "wikitext2_raw_test");
BENCHMARK_CAPTURE(encode, mixtral_code, "mixtral-8x7b", "code_heldout");
BENCHMARK_CAPTURE(encode, mixtral_languages, "mixtral-8x7b", "multilingual_udhr_sample");
BENCHMARK_CAPTURE(encode, qwen3_prose, "qwen3-moe", "wikitext2_raw_test");
BENCHMARK_CAPTURE(encode, qwen3_code, "qwen3-moe", "code_heldout");
BENCHMARK_CAPTURE(encode, qwen3_languages, "qwen3-moe", "multilingual_udhr_sample");
BENCHMARK_CAPTURE(decode, mixtral_prose, "mixtral-8x7b", "wikitext2_raw_test");
BENCHMARK_CAPTURE(decode, qwen3_prose, "qwen3-moe", "wikitext2_raw_test");

}  // namespace
}  // namespace klotski
