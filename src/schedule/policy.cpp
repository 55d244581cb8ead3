#include "schedule/policy.h"

#include <algorithm>

namespace klotski {

namespace {

constexpr std::array<std::string_view, kStrategies> kStrategyNames = {
    "simple", "multi-batch", "hot-prefetch", "klotski", "cgopipe", "hybrid"};

}  // namespace

std::string_view strategy_name(Strategy strategy) {
  return kStrategyNames[static_cast<size_t>(strategy)];
}

std::optional<Strategy> strategy_from_name(std::string_view name) {
  for (size_t i = 0; i < kStrategyNames.size(); ++i) {
    if (kStrategyNames[i] == name) return static_cast<Strategy>(i);
  }
  return std::nullopt;
}

std::string describe_strategy(Strategy strategy, bool cpu_attention) {
  std::string text(strategy_name(strategy));
  // cgopipe is nothing without it.
  if (cpu_attention && strategy != Strategy::cgopipe) text += " with CPU attention";
  return text;
}

std::string_view precision_name(Precision precision) {
  return precision == Precision::f32 ? "f32" : "bf16";
}

std::vector<ExpertId> by_share(const std::vector<double>& shares) {
  std::vector<ExpertId> experts;
  for (size_t e = 0; e < shares.size(); ++e) experts.emplace_back(static_cast<int64_t>(e));
  std::stable_sort(experts.begin(), experts.end(), [&](ExpertId a, ExpertId b) {
    return shares[static_cast<size_t>(a.value)] > shares[static_cast<size_t>(b.value)];
  });
  return experts;
}

Policy with_strategy(Policy policy, Strategy strategy) {
  policy.strategy = strategy;
  if (strategy == Strategy::simple) policy.micro_batches = 1;
  return policy;
}

}  // namespace klotski
