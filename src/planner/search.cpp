#include "planner/search.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "planner/excerpt.h"

namespace klotski {

namespace {

constexpr int64_t kLargestMicroBatch = 128;
constexpr int64_t kMostMicroBatches = 32;
constexpr double kAsFast = 0.99;  // of the fastest: the smaller group answers sooner

std::vector<int64_t> micro_batch_sizes(const SearchSpace& space) {
  if (space.micro_batch) return {*space.micro_batch};
  std::vector<int64_t> sizes;
  for (int64_t size = 1; size <= kLargestMicroBatch; size *= 2) {
    sizes.push_back(std::min(size, space.sequences));
    if (size >= space.sequences) break;
  }
  return sizes;
}

bool foretells(Strategy strategy) {
  return strategy == Strategy::hot_prefetch || strategy == Strategy::klotski;
}

}  // namespace

std::vector<Choice> group_sizes(const SearchSpace& space) {
  Choice choice{.strategy = space.strategy.value_or(Strategy::klotski),
                .hot_experts = space.hot_experts.value_or(0)};
  std::vector<Choice> choices;
  for (const int64_t size : micro_batch_sizes(space)) {
    choice.micro_batch = size;
    if (space.micro_batches || choice.strategy == Strategy::simple) {
      choice.micro_batches =
          choice.strategy == Strategy::simple ? 1 : space.micro_batches.value_or(1);
      choices.push_back(choice);
      continue;
    }
    for (int64_t n = 1; n <= kMostMicroBatches; n += std::max<int64_t>(1, n / 3)) {
      choice.micro_batches = n;
      choices.push_back(choice);
      if (n * size >= space.sequences) break;
    }
  }
  return choices;
}

std::vector<Choice> variants(const SearchSpace& space, const Choice& choice) {
  std::vector<Choice> others;
  const auto add = [&](Choice other) {
    if (other != choice) others.push_back(other);
  };
  for (size_t i = 0; i < kStrategies && !space.strategy; ++i) {
    Choice other = choice;
    other.strategy = static_cast<Strategy>(i);
    if (other.strategy == Strategy::simple) {
      if (space.micro_batches.value_or(1) > 1) continue;  // it knows no more than one
      other.micro_batches = 1;
    }
    add(other);
  }
  if (space.hot_experts || !foretells(choice.strategy)) return others;
  for (int64_t hot = 1; hot < 2 * space.most_experts; hot *= 2) {
    Choice other = choice;
    other.hot_experts = std::min(hot, space.most_experts);
    if (other.hot_experts != space.top_k) add(other);
  }
  return others;
}

namespace {

using Fit = std::function<std::optional<FittedGroup>(const Choice&)>;

double rate(const Prediction& prediction) { return prediction.tokens_per_second(); }

// A choice that fits, with a rough idea of its speed.
struct Rough {
  Choice choice;
  FittedGroup group;
  double rate = 0;
};

// Predicts roughly: some of the layers, and a single group.
class RoughPrediction {
 public:
  RoughPrediction(const Machinery& with, const PlannedWork& work, const Fit& fit)
      : excerpt_(with, kLayers), with_(excerpt_.machinery()), work_(work), fit_(fit) {}

  void add(const std::vector<Choice>& choices) {
    for (const Choice& choice : choices) {
      std::optional<FittedGroup> group = fit_(choice);
      if (!group) continue;
      PlannedWork work = work_;
      work.at_once = group->at_once;
      const double found =
          rate(predict(with_, excerpt_.policy(group->policy), work, kSimulatedGroups));
      found_.push_back({choice, std::move(*group), found});
    }
    std::stable_sort(found_.begin(), found_.end(),
                     [](const Rough& a, const Rough& b) { return a.rate > b.rate; });
  }
  const std::vector<Rough>& found() const { return found_; }  // the fastest first

 private:
  static constexpr int64_t kLayers = 6;
  static constexpr int64_t kSimulatedGroups = 1;

  Excerpt excerpt_;
  Machinery with_;
  const PlannedWork& work_;
  const Fit& fit_;
  std::vector<Rough> found_;
};

// Those to be predicted with care: the fastest group sizes, and of each strategy and each K the
// fastest, so that there is something to compare with.
std::vector<Rough> finalists(const std::vector<Rough>& found) {
  constexpr size_t kSizes = 4;
  std::vector<Rough> chosen;
  std::set<std::pair<int64_t, int64_t>> sizes;
  std::set<std::pair<Strategy, int64_t>> kinds;
  for (const Rough& one : found) {
    const Choice& choice = one.choice;
    const bool new_size =
        sizes.size() < kSizes && sizes.insert({choice.micro_batch, choice.micro_batches}).second;
    const bool new_kind = kinds.insert({choice.strategy, choice.hot_experts}).second;
    if (new_size || new_kind) chosen.push_back(one);
  }
  return chosen;
}

}  // namespace

std::vector<Candidate> search(const Machinery& with, const PlannedWork& work,
                              const SearchSpace& space, const Fit& fit) {
  RoughPrediction rough(with, work, fit);
  rough.add(group_sizes(space));
  if (rough.found().empty()) return {};
  rough.add(variants(space, rough.found().front().choice));
  std::vector<Candidate> candidates;
  for (const Rough& one : finalists(rough.found())) {
    PlannedWork with_room = work;
    with_room.at_once = one.group.at_once;
    candidates.push_back({one.choice, one.group, predict(with, one.group.policy, with_room)});
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) {
                     return rate(a.prediction) > rate(b.prediction);
                   });
  // Of those as fast as the fastest, the smallest group with the usual strategy and K.
  auto best = candidates.begin();
  const auto rank = [](const Candidate& c) {
    return std::tuple(c.choice.group(), c.choice.strategy != Strategy::klotski,
                      c.choice.hot_experts);
  };
  for (auto it = candidates.begin(); it != candidates.end(); ++it) {
    if (rate(it->prediction) < kAsFast * rate(candidates.front().prediction)) break;
    if (rank(*it) < rank(*best)) best = it;
  }
  std::rotate(candidates.begin(), best, best + 1);
  return candidates;
}

}  // namespace klotski
