#pragma once

#include <functional>
#include <span>
#include <vector>

#include "engine/pipeline.h"
#include "planner/run_plan.h"

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

// How well a model foretold tokens: the sum over them of -ln(probability it gave to each).
struct TextScore {
  int64_t tokens = 0;
  double negative_log_likelihood = 0.0;  // nats

  double perplexity() const;
};

// Runs texts through the model and scores every token by those before it in its text; the first of
// a text is not scored. `progress` is told after each pass how many tokens were computed, of how
// many.
TextScore score_texts(Pipeline& pipeline, std::span<const std::vector<TokenId>> texts,
                      const std::function<void(uint64_t done, uint64_t total)>& progress = {});

// The work of scoring such texts, for a pipeline.
Workload score_workload(std::span<const std::vector<TokenId>> texts);

}  // namespace klotski
