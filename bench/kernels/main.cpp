// Speed of the kernels at shapes of real models, compared with the machine's limits. Without a
// filter it runs a selection of under a minute; --benchmark_filter=.* runs everything, and
// --benchmark_filter=matmul/bf16/rows:1/ the products of one row.

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "peak.h"

namespace {

constexpr const char* kSelection =
    "--benchmark_filter="
    "matmul/bf16/rows:(1|8|16|64|512)/in:7168|matmul/(bf16_as_f32|f16|f32)/rows:(1|512)/in:7168|"
    "experts/.*/rows:(1|8)/hidden:2048|attention_prefill/.*:512|attention_decode/.*:32/.*:4096|"
    "(rms_norm|rope|route)/tokens:32/|empty";

// The arguments, with the selection where they ask for nothing else.
std::vector<std::string> with_selection(int argc, char** argv) {
  std::vector<std::string> arguments(argv, argv + argc);
  const bool chosen = std::any_of(arguments.begin(), arguments.end(), [](std::string_view text) {
    return text.starts_with("--benchmark_filter") || text.starts_with("--benchmark_list_tests");
  });
  if (!chosen) arguments.emplace_back(kSelection);
  return arguments;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> arguments = with_selection(argc, argv);
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  auto count = static_cast<int>(pointers.size());
  pointers.push_back(nullptr);
  benchmark::Initialize(&count, pointers.data());
  if (benchmark::ReportUnrecognizedArguments(count, pointers.data())) return 2;
  try {
    klotski::bench::add_peak_to_context();
    benchmark::RunSpecifiedBenchmarks();
  } catch (const klotski::Error& error) {
    fmt::print(stderr, "klotski_kernels_bench: {}\n", error.what());
    return klotski::exit_code(error.kind());
  }
  return 0;
}
