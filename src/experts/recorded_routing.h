#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "experts/routing_trace.h"

namespace klotski {

// Tokens of one recorded sequence that follow each other, and the experts that each went to.
struct RecordedStretch {
  std::vector<TokenId> tokens;
  std::vector<ExpertId> choices;  // [token][routed layer][top_k of that layer], best first
};

// The recorded sequences of traces, cut into stretches of `tokens` tokens: those of a trace in the
// order in which its sequences begin, behind those of the trace before. Refuses (bad_model) a trace
// whose layers differ from the shape's and a sequence with a gap in its positions, and (usage)
// traces without a single sequence of that length.
std::vector<RecordedStretch> read_stretches(const std::vector<std::filesystem::path>& traces,
                                            const RoutingTraceShape& shape, int64_t tokens);

// Recorded choices that the sequences of a run follow in place of their gates' choices: real
// locality for weights that are random.
class RecordedRouting {
 public:
  RecordedRouting(const RoutingTraceShape& shape, std::vector<RecordedStretch> stretches);

  // The stretch that the run's sequence follows, from 0 on; sequences beyond the last stretch begin
  // again with the first.
  const RecordedStretch& stretch(int64_t sequence) const;
  // The choices of the token at a position of the sequence, in a layer that is routed: [top_k].
  std::span<const ExpertId> choices(int64_t sequence, int64_t position, LayerId layer) const;

 private:
  struct LayerPlace {
    size_t first = 0;  // among the choices of a token
    size_t top_k = 0;  // 0: not routed
  };

  std::vector<LayerPlace> layers_;  // [layer up to the last routed one]
  size_t choices_per_token_;
  std::vector<RecordedStretch> stretches_;
};

}  // namespace klotski
