#include "experts/oracle.h"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>

#include "base/error.h"

namespace klotski {

namespace {

class Belady : public EvictionRule {
 public:
  explicit Belady(std::span<const ExpertKey> requests)
      : requests_(requests.begin(), requests.end()), next_use_(requests.size(), kNever) {
    std::map<ExpertKey, int64_t> later;  // the first use after the one at hand
    for (int64_t i = std::ssize(requests_); i-- > 0;) {
      const auto [found, first] = later.try_emplace(requests_[index(i)], i);
      if (first) continue;
      next_use_[index(i)] = found->second;
      found->second = i;
    }
    upcoming_ = std::move(later);
  }

  void used(ExpertKey key, int64_t) override {
    if (now_ >= std::ssize(requests_) || requests_[index(now_)] != key) {
      fail(ErrorKind::internal, "oracle: use {} of {} is not the one that was announced", now_,
           requests_.size());
    }
    upcoming_[key] = next_use_[index(now_++)];
    ++versions_[key.layer];
  }
  int64_t order_version(LayerId layer) const override {
    const auto found = versions_.find(layer);
    return found == versions_.end() ? 0 : found->second;
  }
  size_t victim(std::span<const ExpertKey> candidates) override {
    const auto later = [&](ExpertKey a, ExpertKey b) {
      return std::tuple(-next_use(a), a) < std::tuple(-next_use(b), b);
    };
    return static_cast<size_t>(std::min_element(candidates.begin(), candidates.end(), later) -
                               candidates.begin());
  }

 private:
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

  static size_t index(int64_t i) { return static_cast<size_t>(i); }
  int64_t next_use(ExpertKey key) const {
    const auto found = upcoming_.find(key);
    return found == upcoming_.end() ? kNever : found->second;
  }

  std::vector<ExpertKey> requests_;
  std::vector<int64_t> next_use_;  // of the expert of each request, after that request
  std::map<ExpertKey, int64_t> upcoming_;
  std::map<LayerId, int64_t> versions_;  // see EvictionRule::order_version
  int64_t now_ = 0;
};

}  // namespace

std::unique_ptr<EvictionRule> make_oracle_rule(std::span<const ExpertKey> requests) {
  return std::make_unique<Belady>(requests);
}

}  // namespace klotski
