#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "experts/traced_sequences.h"

namespace klotski {

// The sequences of traces cut into stretches of `tokens` tokens. Refuses (bad_model) traces whose
// layers differ from the shape's, and (usage) traces without a single sequence of that length.
TracedSequences read_stretches(std::span<const std::filesystem::path> traces,
                               const RoutingTraceShape& shape, int64_t tokens);

// Recorded choices that the sequences of a run follow in place of their gates' choices: real
// locality for weights that are random.
class RecordedRouting {
 public:
  explicit RecordedRouting(TracedSequences stretches);

  // The stretch that the run's sequence follows, from 0 on; sequences beyond the last stretch begin
  // again with the first.
  const TracedSequence& stretch(int64_t sequence) const;
  // The experts of the token at a position of the sequence, in a layer that is routed: [top_k].
  std::span<const uint16_t> choices(int64_t sequence, int64_t position, LayerId layer) const;

 private:
  TracedSequences stretches_;
  std::vector<size_t> routed_index_;  // [layer up to the last routed one]
};

}  // namespace klotski
