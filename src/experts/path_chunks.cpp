#include "experts/path_chunks.h"

#include <algorithm>

namespace klotski {

PathChunk TracedChunk::path_chunk(size_t chunk_tokens) const {
  const std::span<const TokenId> tokens = sequence->tokens;
  const size_t before = first == 0 ? 0 : chunk_tokens;
  return {tokens.subspan(first - before, before), tokens.subspan(first, count)};
}

std::vector<TracedChunk> chunks_of(const TracedSequences& traced, int64_t chunk_tokens) {
  std::vector<TracedChunk> chunks;
  const auto most = static_cast<size_t>(chunk_tokens);
  for (const TracedSequence& sequence : traced.sequences) {
    for (size_t first = 0; first < sequence.tokens.size(); first += most) {
      chunks.push_back({&sequence, first, std::min(most, sequence.tokens.size() - first)});
    }
  }
  return chunks;
}

neural::Matrix targets_of(const TracedSequences& traced, std::span<const TracedChunk> chunks) {
  int64_t tokens = 0;
  for (const TracedChunk& chunk : chunks) tokens += static_cast<int64_t>(chunk.count);
  const std::vector<RoutedLayer>& layers = traced.shape.layers;
  int64_t experts = 0;
  for (const RoutedLayer& layer : layers) experts += layer.experts;
  neural::Matrix targets(tokens, experts);
  int64_t row = 0;
  for (const TracedChunk& chunk : chunks) {
    for (size_t i = 0; i < chunk.count; ++i, ++row) {
      float* target = targets.row(row);
      for (size_t layer = 0; layer < layers.size(); target += layers[layer++].experts) {
        const auto chosen = traced.choices(*chunk.sequence, chunk.first + i, layer);
        for (const uint16_t expert : chosen) target[expert] = 1;
      }
    }
  }
  return targets;
}

}  // namespace klotski
