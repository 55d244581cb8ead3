#include "experts/oracle_predictor.h"

namespace klotski {

void OraclePredictor::add_choices(std::vector<double>& probability, LayerId layer, int64_t sequence,
                                  int64_t position) const {
  const int64_t stretch = sequence - 1;  // sequences of a run are numbered from 1 on
  if (position >= std::ssize(recorded_->stretch(stretch).tokens)) return;
  for (const uint16_t expert : recorded_->choices(stretch, position, layer)) {
    probability[expert] = 1.0;
  }
}

std::vector<double> OraclePredictor::estimate(size_t routed_layer, int64_t token) const {
  const RoutedLayer& layer = shape().layers[routed_layer];
  std::vector<double> probability(static_cast<size_t>(layer.experts));
  const PassToken& of = tokens()[static_cast<size_t>(token)];
  add_choices(probability, layer.layer, of.sequence, of.position);
  return probability;
}

// The last token of each sequence in the pass is followed by a token of the next pass.
std::vector<double> OraclePredictor::next_pass_probabilities(LayerId layer) const {
  const int64_t routed = routed_index(layer);
  if (routed < 0) return {};
  std::vector<double> probability(
      static_cast<size_t>(shape().layers[static_cast<size_t>(routed)].experts));
  for (size_t i = 0; i < tokens().size(); ++i) {
    const bool last = i + 1 == tokens().size() || tokens()[i + 1].sequence != tokens()[i].sequence;
    if (last) add_choices(probability, layer, tokens()[i].sequence, tokens()[i].position + 1);
  }
  return probability;
}

}  // namespace klotski
