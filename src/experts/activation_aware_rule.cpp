#include "experts/activation_aware_rule.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <vector>

#include "experts/expecting_rule.h"
#include "experts/least_candidate.h"

namespace klotski {

namespace {

constexpr double kHalfLifePasses = 512;
constexpr double kInitialLayerFavour = 0.05;
// Distance of the running layer: an expert that its gates are known to need stays before all.
constexpr double kRunningLayer = 0.25;

// The share of the passes that used each expert, recent passes weighing more.
class PassShares {
 public:
  explicit PassShares(int64_t layer_count) : layers_(static_cast<size_t>(layer_count)) {}

  void used(ExpertKey key, int64_t pass) {
    std::vector<Share>& layer = layers_.at(static_cast<size_t>(key.layer.value));
    const auto expert = static_cast<size_t>(key.expert.value);
    if (expert >= layer.size()) layer.resize(expert + 1);
    Share& share = layer[expert];
    if (share.pass == pass) return;
    share = {share.weight * left(pass - share.pass) + 1.0, pass};
  }

  double share(ExpertKey key, int64_t pass) const {
    const std::vector<Share>& layer = layers_.at(static_cast<size_t>(key.layer.value));
    const auto expert = static_cast<size_t>(key.expert.value);
    if (expert >= layer.size()) return 0.0;
    const double all = (1.0 - left(pass)) / (1.0 - left(1));  // weight of every pass so far
    return std::min(1.0, layer[expert].weight * left(pass - layer[expert].pass) / all);
  }

 private:
  struct Share {
    double weight = 0.0;  // sum over the passes that used the expert, as of `pass`
    int64_t pass = 0;
  };
  // The part of a pass's weight that is left after some passes.
  static double left(int64_t passes) {
    return std::exp2(-static_cast<double>(passes) / kHalfLifePasses);
  }

  std::vector<std::vector<Share>> layers_;
};

class ActivationAware : public ExpectingRule {
 public:
  explicit ActivationAware(int64_t layer_count)
      : ExpectingRule(layer_count), shares_(layer_count) {}

  void used(ExpertKey key, int64_t) override {
    expectations_.used(key);
    shares_.used(key, std::max<int64_t>(expectations_.pass(), 1));
  }
  size_t victim(std::span<const ExpertKey> candidates) override {
    return least_candidate(candidates,
                           [&](ExpertKey key) { return std::tuple(priority(key), key); });
  }

 private:
  double priority(ExpertKey key) const {
    const auto layers = static_cast<double>(expectations_.layer_count());
    const int64_t ahead = expectations_.ahead(key.layer);
    const double share = shares_.share(key, std::max<int64_t>(expectations_.pass(), 1));
    const double p = (share + expectations_.next_pass_probability(key).value_or(share)) / 2;
    const double favour = 1.0 + kInitialLayerFavour * (1.0 - key.layer.value / layers);
    const bool told = expectations_.told(key.layer);
    const bool comes = ahead > 0 || (ahead == 0 && told && !expectations_.used_in_this_pass(key));
    const double next_pass = p / std::sqrt(static_cast<double>(ahead) + layers);
    if (!comes) return favour * next_pass;
    const double q = told ? expectations_.probability(key) : p;
    const double distance = ahead == 0 ? kRunningLayer : static_cast<double>(ahead);
    return favour * (q / std::sqrt(distance) + (1.0 - q) * next_pass);
  }

  PassShares shares_;
};

}  // namespace

std::unique_ptr<EvictionRule> make_activation_aware_rule(int64_t layer_count) {
  return std::make_unique<ActivationAware>(layer_count);
}

}  // namespace klotski
