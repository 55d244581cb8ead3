#include "timeline/load_use.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <numeric>
#include <string_view>
#include <tuple>

namespace klotski {

namespace {

constexpr std::string_view kLoadWork = "load ";

// Weights by the work that uses them, their layer and, for experts, their number.
using WeightKey = std::tuple<std::string_view, int32_t, int32_t>;

bool loads_weights(const TimelineSpan& span) { return span.work.starts_with(kLoadWork); }

WeightKey key_of(const TimelineSpan& span) {
  const std::string_view work =
      loads_weights(span) ? span.work.substr(kLoadWork.size()) : span.work;
  return {work, span.layer, span.expert};
}

// Loads that nothing has used yet, by their weights.
class PendingLoads {
 public:
  explicit PendingLoads(std::span<const TimelineSpan> spans) : spans_(spans) {}

  void take(size_t index, std::vector<LoadUse>& uses) {
    const TimelineSpan& span = spans_[index];
    if (span.is_expert_work && span.expert < 0) {
      take_all_experts(index, uses);
    } else if (const auto found = pending_.find(key_of(span)); found != pending_.end()) {
      if (take_one(found->second, index, uses)) pending_.erase(found);
    }
    if (loads_weights(span)) pending_[key_of(span)] = index;
  }

 private:
  // A load and its use do not overlap; another load of these weights on the same lane is no use.
  bool take_one(size_t load, size_t use, std::vector<LoadUse>& uses) const {
    if (spans_[load].end > spans_[use].start) return false;
    if (loads_weights(spans_[use]) && spans_[load].lane == spans_[use].lane) return false;
    uses.push_back({load, use});
    return true;
  }

  // One call computes several experts of a layer: all that have come by then.
  void take_all_experts(size_t index, std::vector<LoadUse>& uses) {
    const TimelineSpan& span = spans_[index];
    auto at = pending_.lower_bound({span.work, span.layer, INT32_MIN});
    while (at != pending_.end() && std::get<0>(at->first) == span.work &&
           std::get<1>(at->first) == span.layer) {
      at = take_one(at->second, index, uses) ? pending_.erase(at) : std::next(at);
    }
  }

  std::span<const TimelineSpan> spans_;
  std::map<WeightKey, size_t> pending_;
};

}  // namespace

std::vector<LoadUse> uses_of_loads(std::span<const TimelineSpan> spans) {
  std::vector<size_t> by_start(spans.size());
  std::iota(by_start.begin(), by_start.end(), size_t{0});
  std::stable_sort(by_start.begin(), by_start.end(),
                   [&](size_t a, size_t b) { return spans[a].start < spans[b].start; });
  std::vector<LoadUse> uses;
  PendingLoads pending(spans);
  for (const size_t index : by_start) pending.take(index, uses);
  return uses;
}

}  // namespace klotski
