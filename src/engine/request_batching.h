#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace klotski {

// What a micro-batch has already.
struct MicroBatchLoad {
  int64_t requests = 0;
  int64_t tokens = 0;
};

struct MicroBatchLimits {
  int64_t requests_per_micro_batch = 1;        // the paper's ubs
  int64_t generated_per_request = 0;           // gen_len, tokens
  int64_t cached_per_micro_batch = INT64_MAX;  // cache_size, tokens
};

struct RequestBatches {
  // Indices into the lengths given, by micro-batch, longest first.
  std::vector<std::vector<std::size_t>> micro_batches;
  std::vector<std::size_t> aborted;  // for the next batch, longest first
};

// Algorithm 2 of the MoE-Lightning paper: spreads requests over micro-batches so that their prompt
// tokens are about equal, longest request first, each to the micro-batch with the fewest tokens.
// Equal lengths keep their order; equal sums go to the first. The paper starts with empty
// micro-batches; here `loads` says what each has, so that requests can join a running group.
RequestBatches batch_requests(std::span<const int64_t> prompt_lengths,
                              std::span<const MicroBatchLoad> loads,
                              const MicroBatchLimits& limits);

}  // namespace klotski
