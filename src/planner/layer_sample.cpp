#include "planner/layer_sample.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

namespace klotski {

namespace {

// About `most` layers: of each kind, in an encoder and in a decoder, the share that it has of all
// layers, one at least, at equal distances.
std::vector<LayerId> evenly_taken(const PredictionInputs& whole, int64_t most) {
  const std::vector<int>& kinds = whole.profile.model.kind_of_layer;
  const auto layers = static_cast<int64_t>(kinds.size());
  const int64_t encoding = whole.model.encoder ? whole.model.encoder->layers : 0;
  std::map<std::pair<bool, int>, std::vector<LayerId>> groups;
  for (int64_t i = 0; i < layers; ++i) {
    groups[{i < encoding, kinds[static_cast<size_t>(i)]}].emplace_back(i);
  }
  const double share = std::min(1.0, static_cast<double>(most) / static_cast<double>(layers));
  std::vector<LayerId> taken;
  for (const auto& [kind, group] : groups) {
    const auto size = static_cast<double>(group.size());
    const auto count = std::max<int64_t>(1, std::llround(share * size));
    for (int64_t i = 0; i < count; ++i) {
      taken.push_back(group[static_cast<size_t>((2 * i + 1) * std::ssize(group) / (2 * count))]);
    }
  }
  std::sort(taken.begin(), taken.end());
  return taken;
}

ModelDescription with_layers(ModelDescription model, const std::vector<LayerId>& layers) {
  std::vector<Layer> taken;
  for (const LayerId layer : layers) taken.push_back(model.layer(layer));
  if (model.encoder) {
    model.encoder->layers = std::count_if(layers.begin(), layers.end(), [&](LayerId layer) {
      return layer.value < model.encoder_layers();
    });
  }
  model.layers = std::move(taken);
  return model;
}

// Embedding and logits are computed once a pass: they take the share of the time that the layers
// have of all layers.
Profile with_layers(Profile profile, const std::vector<LayerId>& layers) {
  const double times =
      static_cast<double>(profile.model.kind_of_layer.size()) / static_cast<double>(layers.size());
  profile.model.embed = profile.model.embed.faster(times);
  profile.model.logits = profile.model.logits.faster(times);
  std::vector<int> kinds;
  for (const LayerId layer : layers) {
    kinds.push_back(profile.model.kind_of_layer[static_cast<size_t>(layer.value)]);
  }
  profile.model.kind_of_layer = std::move(kinds);
  return profile;
}

ExpertShares with_layers(const ExpertShares& shares, const ModelDescription& model,
                         const std::vector<LayerId>& layers) {
  std::vector<std::vector<double>> taken;
  for (const LayerId layer : layers) taken.push_back(shares.of(layer));
  return ExpertShares(model, std::move(taken));
}

}  // namespace

LayerSample::LayerSample(const PredictionInputs& whole, int64_t most_layers)
    : layers_(evenly_taken(whole, most_layers)),
      all_layers_(whole.model.layer_count()),
      model_(with_layers(whole.model, layers_)),
      facts_(model_),
      profile_(with_layers(whole.profile, layers_)),
      shares_(with_layers(whole.shares, model_, layers_)),
      most_of_layer_(most_units_of_layer(model_)) {
  for (size_t k = 0; k < kUnitKinds; ++k) {
    const auto kind = static_cast<UnitKind>(k);
    const auto all = static_cast<double>(units_of(whole.model, kind).size());
    const std::vector<WeightUnit> taken = units_of(model_, kind);
    for (const WeightUnit& unit : taken) facts_[unit] = whole.facts(unit_of_whole(unit));
    units_[k] = std::ssize(taken);
    share_of_units_[k] = all > 0 ? static_cast<double>(units_[k]) / all : 0.0;
  }
}

PredictionInputs LayerSample::prediction_inputs() const {
  return {.model = model_,
          .profile = profile_,
          .facts = [this](const WeightUnit& unit) { return facts_[unit]; },
          .shares = shares_};
}

// The unit of the whole model that a unit of the sample stands for.
WeightUnit LayerSample::unit_of_whole(WeightUnit unit) const {
  if (unit.kind != UnitKind::model) unit.layer = layers_[static_cast<size_t>(unit.layer.value)];
  return unit;
}

double LayerSample::times_as_long() const {
  return static_cast<double>(all_layers_) / static_cast<double>(layers_.size());
}

Policy LayerSample::policy(Policy whole) const {
  constexpr size_t kExpert = index_of(UnitKind::expert);
  const int64_t passed_through =  // slots that experts come and go in: as many in any part
      whole.layout.compute().slots[kExpert] - whole.layout.lent_slots - whole.cache.kept_experts;
  for (size_t k = 0; k < kUnitKinds; ++k) {
    // A strategy that needs slots for two layers, and has them, has them in a sample too.
    const int64_t two_layers = std::min(2 * most_of_layer_[k], units_[k]);
    const bool paged = properties_of(whole.strategy).double_buffers_layers &&
                       whole.layout.compute().slots[k] >= two_layers;
    const int64_t least = paged ? two_layers : 1;
    for (TierMemory& memory : whole.layout.tiers) {
      int64_t& slots = memory.slots[k];
      if (slots > 0) slots = std::max(std::min<int64_t>(least, slots), scaled(slots, k));
    }
  }
  const int64_t slots = whole.layout.compute().slots[kExpert];
  if (whole.layout.lent_slots > 0) {
    whole.layout.lent_slots =
        std::min(std::max<int64_t>(1, scaled(whole.layout.lent_slots, kExpert)), slots - 1);
  }
  if (whole.cache.kept_experts > 0) {
    whole.cache.kept_experts =
        std::max<int64_t>(0, slots - whole.layout.lent_slots - passed_through);
  }
  if (!whole.cache.expert_shares.empty()) whole.cache.expert_shares = shares_.all();
  if (whole.division.costs.empty()) return whole;
  std::vector<int> kinds;
  for (const LayerId layer : layers_) {
    kinds.push_back(whole.division.costs.kind_of_layer[static_cast<size_t>(layer.value)]);
  }
  whole.division.costs.kind_of_layer = std::move(kinds);
  return whole;
}

int64_t LayerSample::scaled(int64_t slots, size_t kind) const {
  return std::llround(static_cast<double>(slots) * share_of_units_[kind]);
}

}  // namespace klotski
