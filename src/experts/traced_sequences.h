#pragma once

// Routing traces in memory, by sequence, to train predictors with and to judge them.

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "experts/routing_trace.h"

namespace klotski {

// The tokens of one sequence and the experts each went to.
struct TracedSequence {
  std::vector<TokenId> tokens;
  std::vector<uint16_t> choices;  // [token][routed layer][top_k of that layer], best first
};

struct TracedSequences {
  RoutingTraceShape shape;
  std::vector<TracedSequence> sequences{};

  int64_t tokens() const;
  // The choices of a token in a routed layer, best first.
  std::span<const uint16_t> choices(const TracedSequence& sequence, size_t token,
                                    size_t routed_layer) const;
  // For every expert of all routed layers, the share of the tokens that choose it.
  std::vector<double> shares() const;
};

// Reads traces of one model. The sequences of a file keep the order in which they begin. Refuses
// (bad_model) a sequence with a gap in its positions.
TracedSequences read_traces(std::span<const std::filesystem::path> paths);

// Sequences to train with, and others to judge with what was trained.
struct SplitSequences {
  TracedSequences training;
  TracedSequences held_out;
};
// Holds out about this share of the sequences, spread evenly, at least one. Throws (usage) where
// there are fewer than two sequences.
SplitSequences hold_out(TracedSequences all, double share);

}  // namespace klotski
