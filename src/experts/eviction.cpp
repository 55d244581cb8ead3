#include "experts/eviction.h"

#include <algorithm>
#include <tuple>
#include <vector>

#include <fmt/ranges.h>

#include "base/error.h"
#include "experts/activation_aware_rule.h"
#include "experts/least_candidate.h"
#include "experts/plec_rule.h"

namespace klotski {

namespace {

// When and how often each expert was used. Time is the number of calls so far: if it were the
// number of rows, a single prompt would fade all earlier uses, and uses in its first layers against
// those in its last.
class UsageTable {
 public:
  UsageTable(int64_t layer_count, int64_t uses_per_halving)
      : uses_per_halving_(uses_per_halving),
        layers_(static_cast<size_t>(layer_count)),
        versions_(layers_.size()) {}

  int64_t now() const { return now_; }

  void used(ExpertKey key, int64_t times) {
    ++now_;
    if (now_ == period_end_) {
      ++period_;
      period_end_ += uses_per_halving_;
      for (int64_t& version : versions_) ++version;
    }
    reorder(key.layer);
    auto& layer = layers_.at(static_cast<size_t>(key.layer.value));
    const auto expert = static_cast<size_t>(key.expert.value);
    if (expert >= layer.size()) layer.resize(expert + 1);
    layer[expert] = {now_, frequency(layer[expert]) + times, period_};
  }

  int64_t order_version(LayerId layer) const {
    return versions_.at(static_cast<size_t>(layer.value));
  }
  // The experts of the layer may leave in another order from now on.
  void reorder(LayerId layer) { ++versions_.at(static_cast<size_t>(layer.value)); }

  int64_t last(ExpertKey key) const { return at(key).last; }
  int64_t frequency(ExpertKey key) const { return frequency(at(key)); }

 private:
  struct Usage {
    int64_t last = 0;
    int64_t count = 0;   // count at time `last`; halved for each period that has ended since
    int64_t period = 0;  // period in which `last` lies
  };

  int64_t frequency(const Usage& usage) const {
    return usage.count >> std::min<int64_t>(period_ - usage.period, 63);
  }

  const Usage& at(ExpertKey key) const {
    static constexpr Usage kNever{};
    const auto& layer = layers_.at(static_cast<size_t>(key.layer.value));
    const auto expert = static_cast<size_t>(key.expert.value);
    return expert < layer.size() ? layer[expert] : kNever;
  }

  int64_t uses_per_halving_;
  int64_t now_ = 0;
  int64_t period_ = 0;                      // periods that have ended
  int64_t period_end_ = uses_per_halving_;  // the use with which the next one ends
  std::vector<std::vector<Usage>> layers_;
  std::vector<int64_t> versions_;  // by layer; see EvictionRule::order_version
};

class LeastRecent : public EvictionRule {
 public:
  explicit LeastRecent(UsageTable usage) : usage_(std::move(usage)) {}

  void used(ExpertKey key, int64_t times) override { usage_.used(key, times); }
  int64_t order_version(LayerId layer) const override { return usage_.order_version(layer); }
  size_t victim(std::span<const ExpertKey> candidates) override {
    return least_candidate(candidates,
                           [&](ExpertKey key) { return std::tuple(usage_.last(key), key); });
  }

 private:
  UsageTable usage_;
};

class LeastFrequent : public EvictionRule {
 public:
  explicit LeastFrequent(UsageTable usage) : usage_(std::move(usage)) {}

  void used(ExpertKey key, int64_t times) override { usage_.used(key, times); }
  int64_t order_version(LayerId layer) const override { return usage_.order_version(layer); }
  size_t victim(std::span<const ExpertKey> candidates) override {
    return least_candidate(candidates, [&](ExpertKey key) {
      return std::tuple(usage_.frequency(key), usage_.last(key), key);
    });
  }
  // Requires a clear lead: experts that are used about equally often would replace each other in
  // turn.
  bool worth_replacing(ExpertKey leaving, ExpertKey key) override {
    const int64_t now = usage_.frequency(leaving);
    return usage_.frequency(key) > now + now / 8 + 4;
  }

 private:
  UsageTable usage_;
};

class Furthest : public EvictionRule {
 public:
  Furthest(UsageTable usage, int64_t layer_count)
      : usage_(std::move(usage)), layer_count_(layer_count) {}

  void used(ExpertKey key, int64_t times) override { usage_.used(key, times); }
  int64_t order_version(LayerId layer) const override { return usage_.order_version(layer); }
  void now_at(LayerId layer) override {
    usage_.reorder(LayerId(running_));
    usage_.reorder(layer);
    running_ = layer.value;
    running_since_ = usage_.now();
  }
  size_t victim(std::span<const ExpertKey> candidates) override {
    size_t best = 0;
    int64_t best_ahead = layers_ahead(candidates[0]);
    int64_t best_frequency = usage_.frequency(candidates[0]);
    for (size_t i = 1; i < candidates.size(); ++i) {
      const int64_t ahead = layers_ahead(candidates[i]);
      if (ahead < best_ahead) continue;
      const int64_t frequency = usage_.frequency(candidates[i]);
      const bool nearer = ahead == best_ahead && std::tuple(frequency, candidates[i]) >
                                                     std::tuple(best_frequency, candidates[best]);
      if (nearer) continue;
      best = i;
      best_ahead = ahead;
      best_frequency = frequency;
    }
    return best;
  }

 private:
  int64_t layers_ahead(ExpertKey key) const {
    if (key.layer.value == running_) return usage_.last(key) > running_since_ ? layer_count_ : 0;
    const int64_t ahead = key.layer.value - running_;
    return ahead < 0 ? ahead + layer_count_ : ahead;
  }

  UsageTable usage_;
  int64_t layer_count_;
  int64_t running_ = 0;
  int64_t running_since_ = 0;
};

}  // namespace

std::span<const std::string_view> eviction_rule_names() {
  static constexpr std::string_view kNames[] = {"lru", "lfu", "furthest", "activation-aware",
                                                "plec"};
  return kNames;
}

std::unique_ptr<EvictionRule> make_eviction_rule(std::string_view name, int64_t layer_count,
                                                 int64_t uses_per_halving) {
  UsageTable usage(layer_count, uses_per_halving);
  if (name == "lru") return std::make_unique<LeastRecent>(std::move(usage));
  if (name == "lfu") return std::make_unique<LeastFrequent>(std::move(usage));
  if (name == "furthest") return std::make_unique<Furthest>(std::move(usage), layer_count);
  if (name == "activation-aware") return make_activation_aware_rule(layer_count);
  if (name == "plec") return make_plec_rule(layer_count);
  fail(ErrorKind::usage, "eviction rule: expected one of {}, found {}",
       fmt::join(eviction_rule_names(), ", "), in_quotes(name));
}

}  // namespace klotski
