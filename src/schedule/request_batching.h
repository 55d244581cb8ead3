#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace klotski {

// The requests of a micro-batch that run already.
struct MicroBatchLoad {
  int64_t requests = 0;
  int64_t tokens = 0;
};

// Algorithm 2 of the MoE-Lightning paper: spreads requests over micro-batches so that their prompt
// tokens are about equal, longest request first, each to the micro-batch with the fewest tokens.
// Equal lengths keep their order; equal sums go to the first. The paper starts with empty
// micro-batches; here `loads` are the tokens and requests of each, so that requests can join a
// running group. Room for keys and values is the caller's to check.
//
// Returns the micro-batch of each request. There must be room for all of them with `most_requests`
// (the paper's ubs) in a micro-batch.
std::vector<size_t> batch_requests(std::span<const int64_t> prompt_lengths,
                                   std::span<const MicroBatchLoad> loads, int64_t most_requests);

}  // namespace klotski
