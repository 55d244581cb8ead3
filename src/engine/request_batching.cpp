#include "engine/request_batching.h"

#include <algorithm>
#include <numeric>

namespace klotski {

std::vector<size_t> balance(const std::vector<int64_t>& lengths, std::vector<MicroBatchLoad> loads,
                            int64_t most_requests) {
  std::vector<size_t> order(lengths.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return lengths[a] > lengths[b]; });
  std::vector<size_t> result(lengths.size(), 0);
  for (const size_t request : order) {
    size_t best = loads.size();
    for (size_t k = 0; k < loads.size(); ++k) {
      if (loads[k].requests >= most_requests) continue;
      if (best == loads.size() || loads[k].tokens < loads[best].tokens) best = k;
    }
    result[request] = best;
    loads[best].tokens += lengths[request];
    ++loads[best].requests;
  }
  return result;
}

}  // namespace klotski
