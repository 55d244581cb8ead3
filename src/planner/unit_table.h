#pragma once

#include <algorithm>
#include <array>
#include <vector>

#include "model/units.h"

namespace klotski {

// A value for each unit of a model, found by index: simulations ask for every task.
template <typename Value>
class UnitTable {
 public:
  explicit UnitTable(const ModelDescription& model) : of_layer_(most_units_of_layer(model)) {
    for (size_t kind = 0; kind < kUnitKinds; ++kind) {
      of_layer_[kind] = std::max<int64_t>(of_layer_[kind], 1);
      values_[kind].resize(static_cast<size_t>(of_layer_[kind] * model.layer_count()));
    }
  }

  Value& operator[](const WeightUnit& unit) { return values_[index_of(unit.kind)][place(unit)]; }
  const Value& operator[](const WeightUnit& unit) const {
    return values_[index_of(unit.kind)][place(unit)];
  }

 private:
  size_t place(const WeightUnit& unit) const {
    return static_cast<size_t>(unit.layer.value * of_layer_[index_of(unit.kind)] +
                               unit.expert.value);
  }

  std::array<int64_t, kUnitKinds> of_layer_;  // units of a layer, at least one
  std::array<std::vector<Value>, kUnitKinds> values_;
};

}  // namespace klotski
