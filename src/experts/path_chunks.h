#pragma once

#include <cstddef>
#include <vector>

#include "experts/path_network.h"
#include "experts/traced_sequences.h"

namespace klotski {

// A chunk of a traced sequence: tokens [first, first + count).
struct TracedChunk {
  const TracedSequence* sequence = nullptr;
  size_t first = 0;
  size_t count = 0;

  PathChunk path_chunk(size_t chunk_tokens) const;
};

// All chunks of the sequences, in order; the last of a sequence may be shorter.
std::vector<TracedChunk> chunks_of(const TracedSequences& traced, int64_t chunk_tokens);

// 1 where a token chose an expert, else 0: [tokens of all chunks][experts of all routed layers].
neural::Matrix targets_of(const TracedSequences& traced, std::span<const TracedChunk> chunks);

}  // namespace klotski
