#include "planner/block_model.h"

#include <algorithm>

namespace klotski {

namespace {

std::optional<LayerId> first_routed(const ModelDescription& model) {
  for (size_t j = 0; j < model.layers.size(); ++j) {
    if (model.layers[j].feed_forward.routed) return LayerId(static_cast<int64_t>(j));
  }
  return {};
}

// Share of the units of a kind for which the compute tier has no slot.
double share_to_transfer(const ModelDescription& model, const Policy& policy, UnitKind kind) {
  const auto units = static_cast<double>(units_of(model, kind).size());
  return std::max(0.0,
                  1.0 - static_cast<double>(policy.layout.compute().slots[index_of(kind)]) / units);
}

// Seconds to bring a unit, from host memory to a device or from disk: with a rate of 0 weights take
// no time.
double transfer_seconds(const PredictionInputs& with, const Policy& policy,
                        const WeightUnit& unit) {
  const MachineProfile& machine = with.profile.machine;
  const UnitFacts facts = with.facts(unit);
  if (policy.layout.host()) return machine.link().weights.at(static_cast<double>(facts.own_bytes));
  const double rate = machine.disk().bytes_per_second;
  return rate > 0 ? static_cast<double>(facts.read_bytes) / rate : 0.0;
}

double expert_flops(const ModelDescription& model, LayerId layer, double rows) {
  const auto elements = static_cast<double>(model.hidden * model.layer(layer).feed_forward.width);
  return 2.0 * rows * 3.0 * elements;
}

// FLOPs a second of an expert with as many rows as were measured, at most 512.
double expert_peak(const ModelDescription& model, LayerId layer, const Curve& expert) {
  constexpr double kManyRows = 512.0;
  const double rows = std::min(kManyRows, expert.sizes().back());
  return expert_flops(model, layer, rows) / expert.at(rows);
}

// Bytes of an expert that cross the link, or are read from disk where no device computes.
double expert_bytes(const PredictionInputs& with, LayerId layer) {
  const UnitFacts facts = with.facts(expert_unit(with.model, layer, ExpertId(0)));
  const bool crosses = with.profile.machine.has_device();
  return static_cast<double>(crosses ? facts.own_bytes : facts.read_bytes);
}

}  // namespace

std::optional<BlockModel> block_model(const PredictionInputs& with, const Policy& policy,
                                      double positions) {
  const std::optional<LayerId> layer = first_routed(with.model);
  if (!layer) return {};
  const LayerProfile& profile = with.profile.model.of_layer(layer->value);
  const auto rows = static_cast<double>(policy.group.micro_batch);
  const FeedForward& part = with.model.layer(*layer).feed_forward;
  const auto transfer = [&](const WeightUnit& unit) {
    return transfer_seconds(with, policy, unit) * share_to_transfer(with.model, policy, unit.kind);
  };
  BlockModel block{.layer = *layer, .seconds = {}, .choices = {}};
  block.seconds = {
      .attention_compute =
          profile.attention_products.at(rows) + rows * profile.attend_most().at(positions),
      .gate_compute = profile.route.at(rows),
      .attention_transfer = transfer(attention_unit(*layer)),
      .gate_transfer = transfer(gate_unit(*layer)),
      .expert_transfer = transfer(expert_unit(with.model, *layer, ExpertId(0))),
      .expert_compute = [curve = profile.expert](double tokens) { return curve.at(tokens); }};
  block.choices = {
      .popularity = with.shares.of(*layer),
      .experts_per_token = part.router.top_k,
      .hot_experts = std::min(policy.cache.hot_count(part.router.top_k), part.experts)};
  return block;
}

std::optional<NamedLevels> levels_of_weights(const PredictionInputs& with) {
  const MachineProfile& machine = with.profile.machine;
  const LayerId layer = first_routed(with.model).value_or(LayerId(0));
  const LayerProfile& profile = with.profile.model.of_layer(layer.value);
  const Level main_memory{.memory_bytes_per_second = machine.cpu().memory_bytes_per_second};
  if (!machine.has_device()) {
    if (machine.disk().bytes_per_second <= 0) return {};
    Level upper = main_memory;
    upper.peak_flops_per_second = expert_peak(with.model, layer, profile.expert);
    return NamedLevels{.levels = {.upper = upper,
                                  .lower = {},
                                  .link_bytes_per_second = machine.disk().bytes_per_second},
                       .upper = "memory",
                       .lower = "disk",
                       .link = "the disk"};
  }
  const double bytes = expert_bytes(with, layer);
  Level host = main_memory;
  if (!profile.expert_on_cpu.empty()) {
    host.peak_flops_per_second = expert_peak(with.model, layer, profile.expert_on_cpu);
  }
  return NamedLevels{
      .levels = {.upper = {.peak_flops_per_second = expert_peak(with.model, layer, profile.expert),
                           .memory_bytes_per_second = bytes / profile.expert.at(1)},
                 .lower = host,
                 .link_bytes_per_second = bytes / machine.link().weights.at(bytes)},
      .upper = "GPU memory",
      .lower = "memory",
      .link = "the link"};
}

Operation expert_operation(const PredictionInputs& with, LayerId layer, double rows) {
  const double bytes = expert_bytes(with, layer);
  return {
      .flops = expert_flops(with.model, layer, rows), .upper_bytes = bytes, .lower_bytes = bytes};
}

}  // namespace klotski
