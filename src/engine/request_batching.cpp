#include "engine/request_batching.h"

#include <algorithm>
#include <iterator>
#include <numeric>

namespace klotski {

namespace {

struct Partition {
  std::vector<size_t> requests;
  int64_t prompt_tokens = 0;
};

bool fits(const Partition& partition, int64_t prompt_length, const MicroBatchLimits& limits) {
  const auto requests = static_cast<int64_t>(partition.requests.size()) + 1;
  return partition.prompt_tokens + prompt_length + requests * limits.generated_per_request <=
         limits.cached_per_micro_batch;
}

}  // namespace

RequestBatches batch_requests(std::span<const int64_t> prompt_lengths,
                              const MicroBatchLimits& limits) {
  std::vector<size_t> longest_first(prompt_lengths.size());
  std::iota(longest_first.begin(), longest_first.end(), size_t{0});
  std::stable_sort(longest_first.begin(), longest_first.end(),
                   [&](size_t a, size_t b) { return prompt_lengths[a] > prompt_lengths[b]; });

  RequestBatches result;
  std::vector<Partition> partitions(static_cast<size_t>(limits.micro_batches));
  for (const size_t request : longest_first) {
    const auto emptiest = std::min_element(
        partitions.begin(), partitions.end(),
        [](const Partition& a, const Partition& b) { return a.prompt_tokens < b.prompt_tokens; });
    // The paper's listing goes on to pick a partition even where none is left (its line 6).
    if (emptiest == partitions.end() || !fits(*emptiest, prompt_lengths[request], limits)) {
      result.aborted.push_back(request);
      continue;
    }
    emptiest->requests.push_back(request);
    emptiest->prompt_tokens += prompt_lengths[request];
    if (std::ssize(emptiest->requests) == limits.requests_per_micro_batch) {
      result.micro_batches.push_back(std::move(emptiest->requests));
      partitions.erase(emptiest);
    }
  }
  // The listing returns only full micro-batches; requests of the others would be lost.
  for (Partition& partition : partitions) {
    if (!partition.requests.empty()) result.micro_batches.push_back(std::move(partition.requests));
  }
  return result;
}

}  // namespace klotski
