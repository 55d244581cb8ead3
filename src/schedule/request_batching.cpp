#include "schedule/request_batching.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace klotski {

namespace {

// A micro-batch that can take more requests.
struct Partition {
  size_t number = 0;
  MicroBatchLoad load;
};

}  // namespace

std::vector<size_t> batch_requests(std::span<const int64_t> prompt_lengths,
                                   std::span<const MicroBatchLoad> loads, int64_t most_requests) {
  std::vector<size_t> longest_first(prompt_lengths.size());
  std::iota(longest_first.begin(), longest_first.end(), size_t{0});
  std::stable_sort(longest_first.begin(), longest_first.end(),
                   [&](size_t a, size_t b) { return prompt_lengths[a] > prompt_lengths[b]; });

  std::vector<Partition> partitions;
  for (size_t i = 0; i < loads.size(); ++i) {
    if (loads[i].requests < most_requests) partitions.push_back({i, loads[i]});
  }
  std::vector<size_t> micro_batch_of(prompt_lengths.size());
  for (const size_t request : longest_first) {
    const auto emptiest = std::min_element(
        partitions.begin(), partitions.end(),
        [](const Partition& a, const Partition& b) { return a.load.tokens < b.load.tokens; });
    if (emptiest == partitions.end()) {
      fail(ErrorKind::internal, "{} requests do not fit micro-batches of {}", prompt_lengths.size(),
           most_requests);
    }
    micro_batch_of[request] = emptiest->number;
    emptiest->load.tokens += prompt_lengths[request];
    ++emptiest->load.requests;
    if (emptiest->load.requests == most_requests) partitions.erase(emptiest);
  }
  return micro_batch_of;
}

}  // namespace klotski
