#include "engine/request_batching.h"

#include <algorithm>
#include <numeric>

namespace klotski {

namespace {

// A micro-batch that can take more requests.
struct Partition {
  size_t number = 0;
  MicroBatchLoad load;
};

bool fits(const MicroBatchLoad& load, int64_t prompt_length, const MicroBatchLimits& limits) {
  return load.tokens + prompt_length + (load.requests + 1) * limits.generated_per_request <=
         limits.cached_per_micro_batch;
}

}  // namespace

RequestBatches batch_requests(std::span<const int64_t> prompt_lengths,
                              std::span<const MicroBatchLoad> loads,
                              const MicroBatchLimits& limits) {
  std::vector<size_t> longest_first(prompt_lengths.size());
  std::iota(longest_first.begin(), longest_first.end(), size_t{0});
  std::stable_sort(longest_first.begin(), longest_first.end(),
                   [&](size_t a, size_t b) { return prompt_lengths[a] > prompt_lengths[b]; });

  RequestBatches result;
  result.micro_batches.resize(loads.size());
  std::vector<Partition> partitions;
  for (size_t i = 0; i < loads.size(); ++i) {
    if (loads[i].requests < limits.requests_per_micro_batch) partitions.push_back({i, loads[i]});
  }
  for (const size_t request : longest_first) {
    const auto emptiest = std::min_element(
        partitions.begin(), partitions.end(),
        [](const Partition& a, const Partition& b) { return a.load.tokens < b.load.tokens; });
    // The paper's listing goes on to pick a partition even where none is left (its line 6).
    if (emptiest == partitions.end() || !fits(emptiest->load, prompt_lengths[request], limits)) {
      result.aborted.push_back(request);
      continue;
    }
    result.micro_batches[emptiest->number].push_back(request);
    emptiest->load.tokens += prompt_lengths[request];
    ++emptiest->load.requests;
    if (emptiest->load.requests == limits.requests_per_micro_batch) partitions.erase(emptiest);
  }
  return result;
}

}  // namespace klotski
