#include "planner/expert_costs.h"

#include <algorithm>
#include <cmath>

#include "kv/paged_cache.h"

namespace klotski {

namespace {

// Copies by the rows they bring.
Curve by_rows(const Curve& by_bytes, const ModelDescription& model) {
  std::vector<double> rows(by_bytes.sizes().begin(), by_bytes.sizes().end());
  for (double& size : rows) size /= static_cast<double>(model.hidden) * sizeof(float);
  return {std::move(rows), {by_bytes.seconds().begin(), by_bytes.seconds().end()}};
}

// Seconds of a layer's computing besides experts in a pass of decoding rows.
double seconds_beside_experts(const LayerProfile& layer, const Policy& policy, double positions) {
  const auto rows = static_cast<double>(policy.decode_sequences());
  const Curve& attend =
      policy.division.attends_elsewhere() ? layer.attend_decode_on_cpu : layer.attend_most();
  return static_cast<double>(policy.decode_batches()) *
         (layer.attention_products.at(rows) + rows * attend.at(positions) + layer.route.at(rows) +
          layer.combine.at(rows));
}

double seconds_besides_layers(const PredictionInputs& with, const Policy& policy) {
  const auto rows = static_cast<double>(policy.decode_sequences());
  const ModelProfile& model = with.profile.model;
  return static_cast<double>(policy.decode_batches()) *
         (model.embed.at(rows) + model.logits.at(rows));
}

// Keys and values that come to the device for a layer's attention while a pass decodes: micro-batch
// by micro-batch, some of them while the layer before is computed.
struct ComingKv {
  double batches = 0;
  double hidden = 0;  // micro-batches with a stage of their own
  double bytes = 0;   // bytes of one micro-batch
};

// `page_bytes`, `state_bytes`: bytes of the layer's page and of its state.
ComingKv coming_kv(const Policy& policy, uint64_t page_bytes, uint64_t state_bytes,
                   double positions) {
  if (policy.division.attends_elsewhere() || policy.layout.kv_stages == 0) return {};
  const double pages = std::ceil(positions / static_cast<double>(PagedKvCache::kPageTokens));
  const double batches =
      policy.layout.spilled_share() * static_cast<double>(policy.group.micro_batches);
  return {.batches = batches,
          .hidden = std::min(batches, static_cast<double>(policy.layout.kv_stages)),
          .bytes = static_cast<double>(policy.group.micro_batch) *
                   (pages * static_cast<double>(page_bytes) + static_cast<double>(state_bytes))};
}

}  // namespace

LayerCosts expert_costs(const PredictionInputs& with, const Policy& policy, double all_positions) {
  const MachineProfile& machine = with.profile.machine;
  const LinkProfile& link = machine.link();
  const double positions = policy.visible.attended(all_positions);
  if (link.weights.empty() || link.rows_up.empty() || link.rows_down.empty()) return {};
  const std::vector<LayerProfile>& kinds = with.profile.model.kinds;
  const std::vector<uint64_t> page_bytes =
      PagedKvCache::spilled_page_bytes(with.model, kv_type(policy.precision));
  const std::vector<uint64_t> state_bytes = SequenceStates::spilled_version_bytes(with.model);
  LayerCosts costs{std::vector<ExpertCosts>(kinds.size()), with.profile.model.kind_of_layer};
  for (int64_t i = 0; i < with.model.layer_count(); ++i) {
    const auto kind = static_cast<size_t>(costs.kind_of_layer[static_cast<size_t>(i)]);
    const LayerProfile& profile = kinds[kind];
    const bool routed = with.model.layer(LayerId(i)).feed_forward.routed;
    const bool measured = !profile.attend_decode_on_cpu.empty() && !profile.expert_on_cpu.empty();
    if (routed && !measured) return {};
    const UnitFacts facts = with.facts(expert_unit(with.model, LayerId(i), ExpertId(0)));
    const ComingKv kv = coming_kv(policy, page_bytes[static_cast<size_t>(i)],
                                  state_bytes[static_cast<size_t>(i)], positions);
    const double kv_load = kv.batches > 0 ? link.rows_up.at(kv.bytes) : 0.0;
    const double kv_on_link = kv.batches > 0 ? link.weights.at(kv.batches * kv.bytes) : 0.0;
    // Keys and values are asked for when a pass begins, not by the pass before.
    if (i == 0) costs.between_passes = seconds_besides_layers(with, policy) + kv.hidden * kv_load;
    costs.kinds[kind] = {
        .device = profile.expert,
        .cpu = profile.expert_on_cpu.faster(1.0 / machine.cpu().takes_while_copying),
        .link = link.weights.at(static_cast<double>(facts.own_bytes)) * link.takes_while_computing,
        .down = by_rows(link.rows_down, with.model),
        .up = by_rows(link.rows_up.faster(1.0 / link.rows_take_while_copying), with.model),
        .between =
            seconds_beside_experts(profile, policy, positions) + (kv.batches - kv.hidden) * kv_load,
        .kv = kv_on_link * link.takes_while_computing,
        .slices = policy.division.slices_experts};
  }
  return costs;
}

}  // namespace klotski
