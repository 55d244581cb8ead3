#include "probe/sample.h"

namespace klotski {

namespace {

bool halve(int64_t& width) {
  if (width < 2) return false;
  width /= 2;
  return true;
}

bool halve(ModelDescription& model, UnitKind kind) {
  Layer& layer = model.layers.front();
  switch (kind) {
    case UnitKind::model:
      return halve(model.vocabulary);
    case UnitKind::attention:
      return layer.attention.halve();
    case UnitKind::gate:
      return layer.feed_forward.shared && halve(layer.feed_forward.shared->width);
    default:
      return halve(layer.feed_forward.width);
  }
}

}  // namespace

std::vector<TensorSpec> Sample::tensors() const {
  return unit_tensors(model, WeightUnit{kind, LayerId(0), ExpertId(0)});
}

Sample sample_of(const ModelDescription& model, LayerId layer, UnitKind kind,
                 const StoredTypes& types, uint64_t most_bytes) {
  Sample sample{.model = model, .kind = kind};
  sample.model.layers = {model.layer(layer)};
  const uint64_t whole = weight_bytes(sample.tensors(), types);
  uint64_t bytes = whole;
  while (bytes > most_bytes && halve(sample.model, kind)) {
    bytes = weight_bytes(sample.tensors(), types);
  }
  sample.scale = static_cast<double>(whole) / static_cast<double>(bytes);
  return sample;
}

}  // namespace klotski
