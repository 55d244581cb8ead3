#include "model/units.h"

#include <fmt/format.h>

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

}  // namespace klotski
