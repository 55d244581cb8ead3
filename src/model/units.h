#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/description.h"
#include "model/tensors.h"

namespace klotski {

// The kinds of pieces in which a model's weights move between tiers.
enum class UnitKind {
  model,      // embedding, final norm, output projection: one unit
  attention,  // attention of a layer
  gate,       // norm, router and shared expert of a layer
  dense,      // the only expert of a layer that is not routed: certain to be used
  expert,     // an expert of a routed layer
  count_,
};

inline constexpr size_t kUnitKinds = static_cast<size_t>(UnitKind::count_);

constexpr size_t index_of(UnitKind kind) { return static_cast<size_t>(kind); }
std::string_view unit_kind_name(UnitKind kind);

// One piece of a model's weights: its tensors come and go together.
struct WeightUnit {
  UnitKind kind = UnitKind::model;
  LayerId layer;
  ExpertId expert;

  auto operator<=>(const WeightUnit&) const = default;
};

constexpr WeightUnit model_unit() { return {}; }
constexpr WeightUnit attention_unit(LayerId layer) { return {UnitKind::attention, layer, {}}; }
constexpr WeightUnit gate_unit(LayerId layer) { return {UnitKind::gate, layer, {}}; }
// The unit of an expert in a routed layer, of the only feed-forward part in a dense layer.
WeightUnit expert_unit(const ModelDescription& model, LayerId layer, ExpertId expert);

// "layer 3 expert 5", for messages.
std::string format_unit(const WeightUnit& unit);

// Every unit of a kind, by layer and expert.
std::vector<WeightUnit> units_of(const ModelDescription& model, UnitKind kind);
// Units of each kind in a layer, at most; the model's own unit is in no layer.
std::array<int64_t, kUnitKinds> most_units_of_layer(const ModelDescription& model);

std::vector<TensorSpec> unit_tensors(const ModelDescription& model, const WeightUnit& unit);

}  // namespace klotski
