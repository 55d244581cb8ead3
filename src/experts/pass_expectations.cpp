#include "experts/pass_expectations.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

namespace klotski {

namespace {

// The least of the round(sum) largest probabilities; more than 1 where that is none.
double least_of_expected(std::span<const double> probability) {
  const double sum = std::accumulate(probability.begin(), probability.end(), 0.0);
  if (!(sum >= 0.5)) return 2.0;
  const auto count =
      std::min(std::ssize(probability), static_cast<std::ptrdiff_t>(std::lround(sum)));
  std::vector<double> falling(probability.begin(), probability.end());
  std::nth_element(falling.begin(), falling.begin() + (count - 1), falling.end(), std::greater<>());
  return falling[static_cast<size_t>(count - 1)];
}

}  // namespace

PassExpectations::PassExpectations(int64_t layer_count)
    : layers_(static_cast<size_t>(layer_count)) {}

void PassExpectations::now_at(LayerId layer) {
  if (pass_ == 0 || layer.value <= running_) ++pass_;
  // From the layer that ran to the one that begins now, once round the cycle where it is the same.
  for (int64_t i = running_;;) {
    Layer& over = layers_[static_cast<size_t>(i)];
    over.probability.clear();
    over.mispredicted.clear();
    ++over.version;
    i = (i + 1) % layer_count();
    if (i == layer.value) break;
  }
  running_ = layer.value;
  // The order within a layer depends on how far the layer is where its experts' chances differ.
  for (Layer& one : layers_) {
    if (!one.probability.empty()) ++one.version;
  }
  ++of(layer).version;
}

void PassExpectations::expect(LayerId layer, std::span<const double> probability) {
  Layer& told = of(layer);
  if (layer.value == running_ && !told.probability.empty()) {
    told.mispredicted.resize(probability.size());
    for (size_t e = 0; e < probability.size(); ++e) {
      const ExpertKey key{layer, ExpertId(static_cast<int64_t>(e))};
      if (probability[e] == 0.0 && predicted_active(key)) told.mispredicted[e] = true;
    }
  }
  told.probability.assign(probability.begin(), probability.end());
  told.least_active = least_of_expected(probability);
  ++told.version;
}

void PassExpectations::expect_in_next_pass(LayerId layer, std::span<const double> probability) {
  of(layer).next_pass.assign(probability.begin(), probability.end());
  ++of(layer).version;
}

std::optional<double> PassExpectations::next_pass_probability(ExpertKey key) const {
  const std::vector<double>& told = of(key.layer).next_pass;
  const auto expert = static_cast<size_t>(key.expert.value);
  if (expert >= told.size()) return std::nullopt;
  return told[expert];
}

void PassExpectations::used(ExpertKey key) {
  Layer& layer = of(key.layer);
  const auto expert = static_cast<size_t>(key.expert.value);
  if (expert >= layer.last_pass.size()) layer.last_pass.resize(expert + 1);
  layer.last_pass[expert] = pass_;
  if (key.layer.value == running_ && expert < layer.probability.size()) {
    layer.probability[expert] = 0.0;
  }
  ++layer.version;
}

double PassExpectations::probability(ExpertKey key) const {
  const std::vector<double>& told = of(key.layer).probability;
  const auto expert = static_cast<size_t>(key.expert.value);
  return expert < told.size() ? told[expert] : 0.0;
}

bool PassExpectations::predicted_active(ExpertKey key) const {
  const double told = probability(key);
  return told > 0.0 && told >= of(key.layer).least_active;
}

bool PassExpectations::mispredicted(ExpertKey key) const {
  const std::vector<bool>& of_layer = of(key.layer).mispredicted;
  const auto expert = static_cast<size_t>(key.expert.value);
  return expert < of_layer.size() && of_layer[expert];
}

bool PassExpectations::used_in_this_pass(ExpertKey key) const {
  const std::vector<int64_t>& last = of(key.layer).last_pass;
  const auto expert = static_cast<size_t>(key.expert.value);
  return pass_ > 0 && expert < last.size() && last[expert] == pass_;
}

}  // namespace klotski
