#include "planner/choices.h"

#include <algorithm>

namespace klotski {

namespace {

constexpr int64_t kLargestMicroBatch = 128;
constexpr int64_t kMostMicroBatches = 32;

std::vector<int64_t> micro_batch_sizes(const SearchSpace& space) {
  if (space.micro_batch) return {*space.micro_batch};
  std::vector<int64_t> sizes;
  for (int64_t size = 1; size <= kLargestMicroBatch; size *= 2) {
    sizes.push_back(std::min(size, space.sequences));
    if (size >= space.sequences) break;
  }
  return sizes;
}

bool attends_there(Strategy strategy, bool cpu_attention) {
  return cpu_attention || !properties_of(strategy).needs_cpu_attention;
}

// A choice for each way to use the processors, by the last strategy that does.
std::vector<Choice> ways(const SearchSpace& space) {
  std::vector<Strategy> strategies(space.strategies.rbegin(), space.strategies.rend());
  if (space.strategy) strategies = {*space.strategy};
  std::vector<Choice> found;
  for (const Strategy strategy : strategies) {
    for (const bool cpu_attention : space.cpu_attention) {
      const Choice way{.strategy = strategy,
                       .hot_experts = space.hot_experts.value_or(0),
                       .cpu_attention = cpu_attention};
      const bool known = std::any_of(found.begin(), found.end(), [&](const Choice& other) {
        return processors_of(other) == processors_of(way);
      });
      const bool can = space.strategy || attends_there(strategy, cpu_attention);
      if (can && !known) found.push_back(way);
    }
  }
  return found;
}

}  // namespace

std::pair<bool, bool> processors_of(const Choice& choice) {
  return {properties_of(choice.strategy).divides_experts, choice.cpu_attention};
}

std::vector<Choice> group_sizes(const SearchSpace& space) {
  std::vector<Choice> choices;
  for (Choice choice : ways(space)) {
    const bool one_only = properties_of(choice.strategy).one_micro_batch;
    for (const int64_t size : micro_batch_sizes(space)) {
      choice.micro_batch = size;
      if (space.micro_batches || one_only) {
        choice.micro_batches = one_only ? 1 : *space.micro_batches;
        choices.push_back(choice);
        continue;
      }
      for (int64_t n = 1; n <= kMostMicroBatches; n += std::max<int64_t>(1, n / 3)) {
        choice.micro_batches = n;
        choices.push_back(choice);
        if (n * size >= space.sequences) break;
      }
    }
  }
  return choices;
}

std::vector<Choice> variants(const SearchSpace& space, const Choice& choice) {
  std::vector<Choice> others;
  const auto add = [&](Choice other) {
    if (other != choice) others.push_back(other);
  };
  for (const Strategy strategy : space.strategies) {
    if (space.strategy) break;
    Choice other = choice;
    other.strategy = strategy;
    if (processors_of(other) != processors_of(choice)) continue;
    if (!attends_there(strategy, other.cpu_attention)) continue;
    if (properties_of(other.strategy).one_micro_batch) {
      if (space.micro_batches.value_or(1) > 1) continue;  // the strategy knows one micro-batch only
      other.micro_batches = 1;
    }
    add(other);
  }
  if (space.hot_experts || !properties_of(choice.strategy).prefetches_hot) return others;
  for (const int64_t hot : {space.top_k / 2, 2 * space.top_k, space.most_experts}) {
    Choice other = choice;
    other.hot_experts = std::min(hot, space.most_experts);
    if (hot > 0 && other.hot_experts != space.top_k) add(other);
  }
  return others;
}

}  // namespace klotski
