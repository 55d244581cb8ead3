#include "experts/plec_rule.h"

#include <tuple>
#include <vector>

#include "experts/expecting_rule.h"
#include "experts/least_candidate.h"

namespace klotski {

namespace {

class Plec : public ExpectingRule {
 public:
  explicit Plec(int64_t layer_count)
      : ExpectingRule(layer_count), last_use_(static_cast<size_t>(layer_count)) {}

  void used(ExpertKey key, int64_t) override {
    expectations_.used(key);
    std::vector<int64_t>& layer = last_use_.at(static_cast<size_t>(key.layer.value));
    const auto expert = static_cast<size_t>(key.expert.value);
    if (expert >= layer.size()) layer.resize(expert + 1);
    layer[expert] = ++uses_;
  }
  size_t victim(std::span<const ExpertKey> candidates) override {
    return least_candidate(candidates, [&](ExpertKey key) { return rank(key); });
  }

 private:
  enum class State { misprefetched, not_needed, active };

  // The expert with the least rank leaves first.
  std::tuple<State, int64_t, int64_t, ExpertKey> rank(ExpertKey key) const {
    const State state = state_of(key);
    const int64_t layers_until = state == State::active ? expectations_.ahead(key.layer) : 0;
    return {state, -layers_until, last_use(key), key};
  }
  State state_of(ExpertKey key) const {
    if (expectations_.mispredicted(key)) return State::misprefetched;
    return expectations_.predicted_active(key) ? State::active : State::not_needed;
  }
  int64_t last_use(ExpertKey key) const {
    const std::vector<int64_t>& layer = last_use_.at(static_cast<size_t>(key.layer.value));
    const auto expert = static_cast<size_t>(key.expert.value);
    return expert < layer.size() ? layer[expert] : 0;
  }

  std::vector<std::vector<int64_t>> last_use_;  // [layer][expert]: number of the use; 0: never
  int64_t uses_ = 0;
};

}  // namespace

std::unique_ptr<EvictionRule> make_plec_rule(int64_t layer_count) {
  return std::make_unique<Plec>(layer_count);
}

}  // namespace klotski
