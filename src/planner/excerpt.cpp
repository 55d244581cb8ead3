#include "planner/excerpt.h"

#include <algorithm>
#include <cmath>

namespace klotski {

namespace {

// Odd and even ones in turn: where every other layer is of another kind both are among them.
std::vector<LayerId> evenly_taken(int64_t layers, int64_t most) {
  const int64_t count = std::min(layers, most);
  std::vector<LayerId> taken;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t middle = (2 * i + 1) * layers / (2 * count);
    taken.emplace_back(layers <= most ? i : std::min(middle + i % 2, layers - 1));
  }
  return taken;
}

ModelDescription with_layers(ModelDescription model, const std::vector<LayerId>& layers) {
  std::vector<Layer> taken;
  for (const LayerId layer : layers) taken.push_back(model.layer(layer));
  model.layers = std::move(taken);
  return model;
}

Profile with_layers(Profile profile, const std::vector<LayerId>& layers) {
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

Excerpt::Excerpt(const Machinery& whole, int64_t most_layers)
    : layers_(evenly_taken(whole.model.layer_count(), most_layers)),
      whole_facts_(whole.facts),
      model_(with_layers(whole.model, layers_)),
      profile_(with_layers(whole.profile, layers_)),
      shares_(with_layers(whole.shares, model_, layers_)) {
  for (size_t k = 0; k < kUnitKinds; ++k) {
    const auto kind = static_cast<UnitKind>(k);
    const auto all = static_cast<double>(units_of(whole.model, kind).size());
    share_of_units_[k] = all > 0 ? static_cast<double>(units_of(model_, kind).size()) / all : 0.0;
  }
}

Machinery Excerpt::machinery() const {
  return {.model = model_,
          .profile = profile_,
          .facts =
              [this](WeightUnit unit) {
                if (unit.kind != UnitKind::model) {
                  unit.layer = layers_[static_cast<size_t>(unit.layer.value)];
                }
                return whole_facts_(unit);
              },
          .shares = shares_};
}

Policy Excerpt::policy(Policy whole) const {
  for (size_t k = 0; k < kUnitKinds; ++k) {
    if (whole.slots[k] == 0) continue;
    const double slots = static_cast<double>(whole.slots[k]) * share_of_units_[k];
    whole.slots[k] = std::max<int64_t>(1, std::llround(slots));
  }
  return whole;
}

}  // namespace klotski
