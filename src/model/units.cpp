#include "model/units.h"

#include <fmt/format.h>

#include <algorithm>

namespace klotski {

std::string_view unit_kind_name(UnitKind kind) {
  constexpr std::array<std::string_view, kUnitKinds> kNames = {"model", "attention", "gate",
                                                               "dense", "expert"};
  return kNames[index_of(kind)];
}

WeightUnit expert_unit(const ModelDescription& model, LayerId layer, ExpertId expert) {
  const bool routed = model.layer(layer).feed_forward.routed;
  return {routed ? UnitKind::expert : UnitKind::dense, layer, expert};
}

std::string format_unit(const WeightUnit& unit) {
  if (unit.kind == UnitKind::model) return "embedding and output";
  std::string text = fmt::format("layer {} {}", unit.layer.value, unit_kind_name(unit.kind));
  if (unit.kind == UnitKind::expert) text += fmt::format(" {}", unit.expert.value);
  return text;
}

std::vector<WeightUnit> units_of(const ModelDescription& model, UnitKind kind) {
  if (kind == UnitKind::model) return {model_unit()};
  std::vector<WeightUnit> units;
  for (int64_t i = 0; i < model.layer_count(); ++i) {
    const LayerId layer(i);
    if (kind == UnitKind::attention) units.push_back(attention_unit(layer));
    if (kind == UnitKind::gate) units.push_back(gate_unit(layer));
    for (int64_t e = 0; e < model.layer(layer).feed_forward.experts; ++e) {
      const WeightUnit unit = expert_unit(model, layer, ExpertId(e));
      if (unit.kind == kind) units.push_back(unit);
    }
  }
  return units;
}

std::vector<TensorSpec> unit_tensors(const ModelDescription& model, const WeightUnit& unit) {
  switch (unit.kind) {
    case UnitKind::model:
      return model_tensors(model);
    case UnitKind::attention:
      return attention_tensors(model, unit.layer);
    case UnitKind::gate:
      return gate_tensors(model, unit.layer);
    case UnitKind::dense:
    case UnitKind::expert:
    case UnitKind::count_:
      break;
  }
  return expert_tensors(model, unit.layer, unit.expert);
}

std::array<int64_t, kUnitKinds> most_units_of_layer(const ModelDescription& model) {
  std::array<int64_t, kUnitKinds> most{};
  for (size_t k = 0; k < kUnitKinds; ++k) {
    const auto kind = static_cast<UnitKind>(k);
    if (kind == UnitKind::model) continue;
    std::vector<int64_t> of_layer(model.layers.size(), 0);
    for (const WeightUnit& unit : units_of(model, kind)) {
      most[k] = std::max(most[k], ++of_layer[static_cast<size_t>(unit.layer.value)]);
    }
  }
  return most;
}

}  // namespace klotski
