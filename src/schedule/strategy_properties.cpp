#include "schedule/strategy_properties.h"

namespace klotski {

namespace {

constexpr std::array<StrategyProperties, kStrategies> kProperties{{
    {.strategy = Strategy::simple, .name = "simple", .one_micro_batch = true},
    {.strategy = Strategy::multi_batch, .name = "multi-batch"},
    {.strategy = Strategy::hot_prefetch, .name = "hot-prefetch", .prefetches_hot = true},
    {.strategy = Strategy::klotski,
     .name = "klotski",
     .prefetches_hot = true,
     .competes_on_device = true},
    {.strategy = Strategy::activation_aware,
     .name = "activation-aware",
     .predictor = "activation-aware",
     .eviction = "activation-aware",
     .competes_on_device = true},
    {.strategy = Strategy::predictive,
     .name = "predictive",
     .predictor = "token",
     .eviction = "activation-aware",
     .competes_on_device = true},
    {.strategy = Strategy::cgopipe,
     .name = "cgopipe",
     .needs_device = true,
     .needs_cpu_attention = true,
     .competes_on_device = true,
     .double_buffers_layers = true},
    {.strategy = Strategy::hybrid,
     .name = "hybrid",
     .needs_device = true,
     .prefetches_hot = true,
     .divides_experts = true,
     .competes_on_device = true},
}};

constexpr bool in_order() {
  for (size_t i = 0; i < kStrategies; ++i) {
    if (kProperties[i].strategy != static_cast<Strategy>(i) || kProperties[i].name.empty()) {
      return false;
    }
  }
  return true;
}
static_assert(in_order(), "a row for every strategy, in the order of the enumeration");

}  // namespace

const StrategyProperties& properties_of(Strategy strategy) {
  return kProperties[static_cast<size_t>(strategy)];
}

std::optional<Strategy> strategy_from_name(std::string_view name) {
  for (const StrategyProperties& row : kProperties) {
    if (row.name == name) return row.strategy;
  }
  return std::nullopt;
}

std::string describe_strategy(Strategy strategy, bool cpu_attention) {
  const StrategyProperties& row = properties_of(strategy);
  std::string text(row.name);
  if (cpu_attention && !row.needs_cpu_attention) text += " with CPU attention";
  return text;
}

}  // namespace klotski
