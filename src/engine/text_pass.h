#pragma once

#include <functional>
#include <span>
#include <vector>

#include "engine/pipeline.h"

namespace klotski {

// A long text as sequences of at most `most_tokens` tokens, each to be run by itself.
std::vector<std::vector<TokenId>> cut_into_sequences(std::span<const TokenId> tokens,
                                                     int64_t most_tokens);

// Consecutive tokens of one of the texts, and the first of their rows in the group's choices.
struct RoutedPiece {
  size_t text = 0;
  int64_t first_position = 0;
  std::span<const TokenId> tokens;
  int64_t first_row = 0;
};

// Told after each pass its pieces and the gates' choices.
using TakeRouting = std::function<void(std::span<const RoutedPiece>, const GroupChoices&)>;

// Runs texts through the model for the choices of their gates; nothing is generated. Each must fit
// the KV cache by itself. The correlation table learns from them, as it does from every pass.
void pass_texts(Pipeline& pipeline, std::span<const std::vector<TokenId>> texts,
                const TakeRouting& take = {});

}  // namespace klotski
