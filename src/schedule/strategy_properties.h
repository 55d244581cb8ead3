#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace klotski {

// Strategies in the order of the Klotski paper's ablation, each adding one idea to the one before;
// then those that follow a predictor over several layers, and those that need a device and the CPU.
enum class Strategy {
  simple,
  multi_batch,
  hot_prefetch,
  klotski,
  activation_aware,
  predictive,
  cgopipe,
  hybrid,
  count_
};

inline constexpr size_t kStrategies = static_cast<size_t>(Strategy::count_);

// The properties of a strategy that planning, searching and reports ask for. Code outside the
// strategy's own file asks for a property, never for a strategy by name.
struct StrategyProperties {
  Strategy strategy = Strategy::klotski;
  std::string_view name;         // the value of --strategy
  bool needs_device = false;     // without a device it is the strategy that it is built on
  bool one_micro_batch = false;  // works on a group of one micro-batch only
  bool prefetches_hot = false;   // brings K hot experts: their number matters
  // The predictor and the eviction rule that the strategy follows unless others are asked for;
  // empty: it goes by no predictor over several layers, and any rule does.
  std::string_view predictor{};
  std::string_view eviction{};
  bool divides_experts = false;  // the CPU computes some experts, a device the others
  bool needs_cpu_attention = false;
  bool competes_on_device = false;     // may be the fastest there; others are steps of the ablation
  bool double_buffers_layers = false;  // wants slots for the units of any two layers

  bool follows_predictor() const { return !predictor.empty(); }
};

const StrategyProperties& properties_of(Strategy strategy);

inline std::string_view strategy_name(Strategy strategy) { return properties_of(strategy).name; }
std::optional<Strategy> strategy_from_name(std::string_view name);
// A strategy in words, and whether the CPU attends.
std::string describe_strategy(Strategy strategy, bool cpu_attention);

}  // namespace klotski
