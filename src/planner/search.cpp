#include "planner/search.h"

#include <algorithm>

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
      choice.micro_batches = space.micro_batches.value_or(1);
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
    if (other.strategy == Strategy::simple) other.micro_batches = 1;
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

std::vector<Candidate> search(const Machinery& with, const PlannedWork& work,
                              const SearchSpace& space,
                              const std::function<std::optional<FittedGroup>(Choice)>& fit) {
  std::vector<Candidate> candidates;
  const auto rate = [](const Candidate& c) { return c.prediction.tokens_per_second(); };
  const auto predict_all = [&](const std::vector<Choice>& choices) {
    for (const Choice& choice : choices) {
      std::optional<FittedGroup> group = fit(choice);
      if (!group) continue;
      PlannedWork with_room = work;
      with_room.at_once = group->at_once;
      const Prediction prediction = predict(with, group->policy, with_room);
      candidates.push_back({choice, std::move(*group), prediction});
    }
  };
  // The fastest; of those as fast the smallest group, and of these the one found first.
  const auto chosen = [&] {
    double fastest = 0.0;
    for (const Candidate& candidate : candidates) fastest = std::max(fastest, rate(candidate));
    auto best = candidates.end();
    for (auto it = candidates.begin(); it != candidates.end(); ++it) {
      if (rate(*it) < kAsFast * fastest) continue;
      if (best == candidates.end() || it->choice.group() < best->choice.group()) best = it;
    }
    return best;
  };
  predict_all(group_sizes(space));
  if (candidates.empty()) return candidates;
  predict_all(variants(space, chosen()->choice));
  const auto best = chosen();
  std::rotate(candidates.begin(), best, best + 1);
  std::stable_sort(candidates.begin() + 1, candidates.end(),
                   [&](const Candidate& a, const Candidate& b) { return rate(a) > rate(b); });
  return candidates;
}

}  // namespace klotski
