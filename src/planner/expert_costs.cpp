#include "planner/expert_costs.h"

#include <algorithm>

namespace klotski {

namespace {

// Copies by the rows they bring.
Curve by_rows(const Curve& by_bytes, const ModelDescription& model) {
  std::vector<double> rows(by_bytes.sizes().begin(), by_bytes.sizes().end());
  for (double& size : rows) size /= static_cast<double>(model.hidden) * sizeof(float);
  return {std::move(rows), {by_bytes.seconds().begin(), by_bytes.seconds().end()}};
}

// All that a pass of decoding rows computes of a layer besides experts.
double seconds_between(const LayerProfile& layer, const Policy& policy, double positions) {
  const auto rows = static_cast<double>(policy.decode_sequences());
  const Curve& attend = policy.cpu_attention ? layer.attend_decode_on_cpu : layer.attend_decode;
  return static_cast<double>(policy.decode_batches()) *
         (layer.attention_products.at(rows) + rows * attend.at(positions) + layer.route.at(rows) +
          layer.combine.at(rows));
}

}  // namespace

LayerCosts expert_costs(const Machinery& with, const Policy& policy, double positions) {
  const MachineProfile& machine = with.profile.machine;
  if (machine.link.empty() || machine.rows_up.empty() || machine.rows_down.empty()) return {};
  const std::vector<LayerProfile>& kinds = with.profile.model.kinds;
  LayerCosts costs{std::vector<ExpertCosts>(kinds.size()), with.profile.model.kind_of_layer};
  for (int64_t i = 0; i < with.model.layer_count(); ++i) {
    const auto kind = static_cast<size_t>(costs.kind_of_layer[static_cast<size_t>(i)]);
    const LayerProfile& profile = kinds[kind];
    const bool routed = with.model.layer(LayerId(i)).feed_forward.routed;
    const bool measured = !profile.attend_decode_on_cpu.empty() && !profile.expert_on_cpu.empty();
    if (routed && !measured) return {};
    const UnitFacts facts = with.facts(expert_unit(with.model, LayerId(i), ExpertId(0)));
    costs.kinds[kind] = {
        .device = profile.expert,
        .cpu = profile.expert_on_cpu.faster(1.0 / machine.cpu_takes_while_copying),
        .link = machine.link.at(static_cast<double>(facts.own_bytes)) *
                machine.copying_takes_while_cpu_computes,
        .down = by_rows(machine.rows_down, with.model),
        .up = by_rows(machine.rows_up.faster(1.0 / machine.rows_take_while_copying), with.model),
        .between = seconds_between(profile, policy, positions),
        .slices = policy.slices_experts};
  }
  return costs;
}

}  // namespace klotski
