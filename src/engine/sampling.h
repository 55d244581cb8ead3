#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/ids.h"

namespace klotski {

// How the next token is chosen from the logits. The defaults are greedy decoding.
struct SamplingOptions {
  double temperature = 0.0;         // 0: the most likely token, no chance involved
  int64_t top_k = 0;                // only the k most likely tokens; 0: all
  double top_p = 1.0;               // only the most likely tokens that hold this share together
  double min_p = 0.0;               // only tokens at least this share as likely as the best
  double repetition_penalty = 1.0;  // divides the logit of every token seen, prompt included
  double presence_penalty = 0.0;    // subtracted once for a token generated before
  double frequency_penalty = 0.0;   // subtracted for each time it was generated
  // Added to the logits of these tokens before all else.
  std::vector<std::pair<TokenId, double>> logit_bias{};
  uint64_t seed = 0;
};

// A token with the logarithm of its probability.
struct TokenLogprob {
  TokenId token = 0;
  double logprob = 0.0;
};

// Probabilities of one position: of the chosen token, and of the most likely ones, likeliest first.
struct PositionLogprobs {
  double chosen = 0.0;
  std::vector<TokenLogprob> top;
};

// The probabilities that the model's own logits give, without bias, penalties or temperature. The
// chosen token need not be among the `most` likeliest.
PositionLogprobs logprobs_of(std::span<const float> logits, TokenId chosen, int64_t most);

// Chooses the tokens of one sequence. Its randomness depends on the seed and on how many tokens
// were chosen before, never on other sequences of a batch.
class Sampler {
 public:
  Sampler(const SamplingOptions& options, std::span<const TokenId> prompt);

  // Nothing where no token can be chosen: the logits hold a NaN or an infinity, or none is left.
  std::optional<TokenId> next(std::span<const float> logits);
  // Whether the next token is the most likely one whatever came before; next_most_likely() is then
  // next() from that token alone, -1: there is none.
  bool takes_most_likely() const;
  std::optional<TokenId> next_most_likely(TokenId token) { return taken(token); }

 private:
  struct Candidate {
    TokenId token;
    float logit;
    double probability;
  };

  bool adjusts() const;
  std::vector<float> adjusted(std::span<const float> logits) const;
  std::vector<Candidate> candidates(std::span<const float> logits) const;
  double uniform();
  std::optional<TokenId> taken(TokenId token);  // -1: none

  SamplingOptions options_;
  std::unordered_map<TokenId, int64_t> generated_;  // times each was chosen
  std::unordered_set<TokenId> seen_;                // prompt and generated
  uint64_t chosen_count_ = 0;
};

}  // namespace klotski
