#include "schedule/policy.h"

namespace klotski {

namespace {

constexpr std::array<std::string_view, kStrategies> kNames = {"simple", "multi-batch",
                                                              "hot-prefetch", "klotski"};

}  // namespace

std::string_view strategy_name(Strategy strategy) { return kNames[static_cast<size_t>(strategy)]; }

std::optional<Strategy> strategy_from_name(std::string_view name) {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<Strategy>(i);
  }
  return std::nullopt;
}

std::string_view precision_name(Precision precision) {
  return precision == Precision::f32 ? "f32" : "bf16";
}

Policy with_strategy(Policy policy, Strategy strategy) {
  policy.strategy = strategy;
  if (strategy == Strategy::simple) policy.micro_batches = 1;
  return policy;
}

}  // namespace klotski
