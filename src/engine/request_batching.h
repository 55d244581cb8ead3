#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace klotski {

struct MicroBatchLimits {
  int64_t micro_batches = 1;             // the paper's n_ub
  int64_t requests_per_micro_batch = 1;  // ubs
  int64_t generated_per_request = 0;     // gen_len, tokens
  int64_t cached_per_micro_batch = 0;    // cache_size, tokens
};

struct RequestBatches {
  // Indices into the lengths given. Full micro-batches first, in the order they filled up; then
  // those with room left that have any request.
  std::vector<std::vector<size_t>> micro_batches;
  std::vector<size_t> aborted;  // for the next batch, longest first
};

// Algorithm 2 of the MoE-Lightning paper: spreads requests over micro-batches so that their prompt
// tokens are about equal, longest request first, each to the micro-batch with the fewest tokens.
// Equal lengths keep their order; equal sums go to the first.
RequestBatches batch_requests(std::span<const int64_t> prompt_lengths,
                              const MicroBatchLimits& limits);

}  // namespace klotski
