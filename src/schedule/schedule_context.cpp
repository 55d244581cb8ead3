#include "schedule/schedule_context.h"

namespace klotski {

UnitFacts facts_of(const UnitLayouts& layouts, const WeightUnit& unit) {
  const UnitLayout& layout = layouts.of(unit);
  return {layout.read_bytes, layout.must_settle(), layout.own_bytes};
}

int64_t ScheduleContext::group_rows() const {
  int64_t sum = 0;
  for (const MicroBatchShape& micro_batch : group) sum += micro_batch.rows;
  return sum;
}

std::vector<ExpertId> ContextSources::hot(LayerId layer) const {
  const int64_t top_k = model.layer(layer).feed_forward.router.top_k;
  std::vector<ExpertId> experts;
  for (const ExpectedExpert& expected : predictor.predict(layer, rule.hot_count(top_k))) {
    experts.push_back(expected.expert);
  }
  return experts;
}

std::vector<LayerProbabilities> ContextSources::coming() const {
  if (std::ssize(predictor.tokens()) > kMostGuessedRows) return {};
  std::vector<LayerProbabilities> coming = predictor.coming(kGuessedLayers);
  const size_t known = predictor.choices().known_layers();
  const PassLayers next_pass_layers = model.pass_layers(/*encodes=*/false);
  for (size_t routed = 0; routed < known && std::ssize(coming) < kGuessedLayers; ++routed) {
    const LayerId layer = predictor.shape().layers[routed].layer;
    if (layer.value < next_pass_layers.first) continue;
    LayerProbabilities next_pass{layer, predictor.next_pass_probabilities(layer)};
    if (next_pass.probability.empty()) break;
    coming.push_back(std::move(next_pass));
  }
  return coming;
}

ScheduleContext ContextSources::context(std::vector<MicroBatchShape> group) const {
  return {.model = model,
          .group = std::move(group),
          .facts = facts,
          .hot = [this](LayerId layer) { return hot(layer); },
          .coming = [this] { return coming(); },
          .rows = rows};
}

}  // namespace klotski
