#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace klotski {

struct MicroBatchLoad {
  int64_t tokens = 0;
  int64_t requests = 0;
};

// Which micro-batch each request goes to.
std::vector<std::size_t> balance(const std::vector<int64_t>& lengths, std::vector<MicroBatchLoad> loads,
                            int64_t most_requests);

}  // namespace klotski
