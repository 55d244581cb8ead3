#include "planner/search.h"

#include <algorithm>

namespace klotski {

namespace {

constexpr int64_t kLargestMicroBatch = 128;
constexpr int64_t kMostMicroBatches = 32;
constexpr double kAsFast = 0.99;  // of the fastest: the smaller group answers sooner

}  // namespace

std::vector<GroupSize> group_sizes(int64_t sequences, std::optional<int64_t> micro_batch,
                                   std::optional<int64_t> micro_batches) {
  std::vector<int64_t> batches;
  if (micro_batch) {
    batches.push_back(*micro_batch);
  } else {
    for (int64_t size = 1; size <= kLargestMicroBatch; size *= 2) {
      batches.push_back(std::min(size, sequences));
      if (size >= sequences) break;
    }
  }
  std::vector<GroupSize> sizes;
  for (const int64_t size : batches) {
    if (micro_batches) {
      sizes.push_back({size, *micro_batches});
      continue;
    }
    for (int64_t n = 1; n <= kMostMicroBatches; n += std::max<int64_t>(1, n / 3)) {
      sizes.push_back({size, n});
      if (n * size >= sequences) break;  // all of them in one group
    }
  }
  return sizes;
}

std::vector<Candidate> search(const Machinery& with, const PlannedWork& work,
                              const std::vector<GroupSize>& sizes,
                              const std::function<std::optional<FittedGroup>(GroupSize)>& fit) {
  std::vector<Candidate> candidates;
  for (const GroupSize& size : sizes) {
    std::optional<FittedGroup> group = fit(size);
    if (!group) continue;
    PlannedWork with_room = work;
    with_room.at_once = group->at_once;
    const Prediction prediction = predict(with, group->policy, with_room);
    candidates.push_back({size, std::move(*group), prediction});
  }
  const auto rate = [](const Candidate& c) { return c.prediction.tokens_per_second(); };
  std::stable_sort(candidates.begin(), candidates.end(),
                   [&](const Candidate& a, const Candidate& b) { return rate(a) > rate(b); });
  const auto group_of = [](const Candidate& c) {
    return c.size.micro_batch * c.size.micro_batches;
  };
  auto chosen = candidates.begin();
  for (auto other = candidates.begin(); other != candidates.end(); ++other) {
    if (rate(*other) < kAsFast * rate(candidates.front())) break;
    if (group_of(*other) < group_of(*chosen)) chosen = other;
  }
  if (chosen != candidates.end()) std::rotate(candidates.begin(), chosen, chosen + 1);
  return candidates;
}

}  // namespace klotski
