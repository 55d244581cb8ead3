#include "session/session_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>
#include <string_view>

#include "base/error.h"
#include "model/unit_layout.h"
#include "tensor/format.h"

namespace klotski {

namespace {

// Place of a name among those that an option has; refuses (usage) others.
size_t place_of(std::string_view option, std::string_view name,
                std::span<const std::string_view> names) {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) {
    fail(ErrorKind::usage, "{}: expected {} or {}, found {}", option,
         fmt::join(names.first(names.size() - 1), ", "), names.back(), in_quotes(name));
  }
  return static_cast<size_t>(found - names.begin());
}

}  // namespace

std::optional<Strategy> strategy_choice(std::string_view option, std::string_view name) {
  std::array<std::string_view, 1 + kStrategies> names{"auto"};
  for (size_t i = 0; i < kStrategies; ++i) names[1 + i] = strategy_name(static_cast<Strategy>(i));
  const size_t place = place_of(option, name, names);
  if (place == 0) return std::nullopt;
  return static_cast<Strategy>(place - 1);
}

std::optional<bool> cpu_attention_choice(std::string_view option, std::string_view name) {
  constexpr std::array<std::string_view, 3> kNames{"auto", "cpu", "gpu"};
  constexpr std::array<std::optional<bool>, 3> kChoices{std::nullopt, true, false};
  return kChoices[place_of(option, name, kNames)];
}

Precision precision_choice(std::string_view option, std::string_view name) {
  constexpr std::array<std::string_view, 2> kNames{"bf16", "f32"};
  constexpr std::array kChoices{Precision::bf16, Precision::f32};
  return kChoices[place_of(option, name, kNames)];
}

std::string kernels_choice(std::string_view option, std::string_view name) {
  constexpr std::array<std::string_view, 2> kNames{"cpu", "reference"};
  return std::string(kNames[place_of(option, name, kNames)]);
}

void check_options(const SessionOptions& options) {
  const RunLimits& limits = options.limits;
  if (limits.attention_sinks > 0 && limits.attention_window == 0) {
    fail(ErrorKind::usage, "--attention-sinks: expected --attention-window with it");
  }
  if (limits.strategy && properties_of(*limits.strategy).needs_cpu_attention &&
      limits.cpu_attention == false) {
    fail(ErrorKind::usage, "--strategy {} attends on the CPU, --attention asks for the GPU",
         strategy_name(*limits.strategy));
  }
}

void check_options_on_target(const SessionOptions& options, const Target& target) {
  if (target.device) return;
  if (options.limits.vram_bytes) {
    fail(ErrorKind::usage, "--vram: expected a GPU, found none that computes; see klotski doctor");
  }
  const std::optional<Strategy>& strategy = options.limits.strategy;
  if (strategy && properties_of(*strategy).needs_device) {
    fail(ErrorKind::usage, "--strategy {} divides work between a GPU and the CPU: expected a GPU",
         strategy_name(*strategy));
  }
  if (options.limits.cpu_attention == true) {
    fail(ErrorKind::usage,
         "--attention cpu: expected a GPU beside the CPU, which does all without");
  }
}

SessionOptions on_cpu(SessionOptions options) {
  options.device = "cpu";
  RunLimits& limits = options.limits;
  limits.cpu_attention.reset();
  limits.vram_bytes.reset();
  if (limits.strategy && properties_of(*limits.strategy).needs_device) limits.strategy.reset();
  return options;
}

std::vector<DType> weight_types(const OpenedModel& model) {
  const UnitLayouts layouts(model.description, model.checkpoint);
  return {layouts.formats().begin(), layouts.formats().end()};
}

std::vector<std::string> losses(const RunLimits& limits, std::span<const DType> weights) {
  std::vector<std::string> list;
  std::set<std::string_view> types;
  for (const DType type : weights) {
    if (format_of(type).lossy) types.insert(dtype_name(type));
  }
  if (!types.empty()) {
    list.push_back(fmt::format("weights quantised as {}", fmt::join(types, ", ")));
  }
  if (limits.attention_window != 0) {
    list.push_back(fmt::format("attention to the first {} and the last {} tokens only",
                               limits.attention_sinks, limits.attention_window));
  }
  return list;
}

namespace {

std::string predictor_name(const SessionOptions& options, Strategy strategy) {
  if (!options.predictor.empty()) return options.predictor;
  if (!options.predictor_file.empty()) return "path";
  if (!options.activation_file.empty()) return "activation-aware";
  const StrategyProperties& has = properties_of(strategy);
  return has.follows_predictor() ? std::string(has.predictor) : "correlation";
}

}  // namespace

PredictorChoice read_predictor(const ModelDescription& model, const SessionOptions& options,
                               Strategy strategy) {
  PredictorChoice choice{.name = predictor_name(options, strategy)};
  const auto only_for = [&](const std::string& file, std::string_view option,
                            std::string_view predictor) {
    if (file.empty() || choice.name == predictor) return;
    fail(ErrorKind::usage, "{} is read by --predictor {}: expected that, found {}", option,
         predictor, in_quotes(choice.name));
  };
  only_for(options.predictor_file, "--predictor-file", "path");
  const bool keeps_history =
      choice.name == "activation-aware" || choice.name == "token" || choice.name == "path";
  if (!keeps_history) only_for(options.activation_file, "--eamc", "activation-aware");
  const RoutingTraceShape shape = routing_shape(model);
  if (choice.name == "path") {
    if (options.predictor_file.empty()) {
      fail(ErrorKind::usage,
           "--predictor path: expected --predictor-file with a network that klotski "
           "train-predictor has written");
    }
    choice.network =
        std::make_shared<PathNetwork>(PathNetwork::load(options.predictor_file, shape));
  }
  if (keeps_history) {
    choice.history = std::make_shared<ActivationHistory>(
        ActivationHistory::load_if_there(options.activation_file, shape, kActivationCapacity));
  }
  return choice;
}

std::optional<CorrelationTable> read_correlation_table(const ModelDescription& model,
                                                       const SessionOptions& options) {
  if (options.correlation_file.empty()) return {};
  CorrelationTable table = CorrelationTable::load(options.correlation_file, routing_shape(model));
  if (table.path_length() != options.limits.path_length) {
    fail(ErrorKind::usage, "--correlation: {} has paths of length {}, --path-length is {}",
         in_quotes(options.correlation_file, 300), table.path_length(), options.limits.path_length);
  }
  return table;
}

}  // namespace klotski
