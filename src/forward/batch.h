#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"

namespace klotski {

enum class LogitsOf { none, last_token, every_token };

// Consecutive tokens of one sequence inside a batch.
struct BatchSequence {
  int64_t first_row = 0;
  int64_t tokens = 0;
  int64_t past = 0;    // positions of the sequence computed before
  int64_t length = 0;  // positions known so far: these and, of a prompt taken in pieces, later ones
  LogitsOf logits = LogitsOf::last_token;
  // First positions of the sequence that are an encoder's input; 0: the model has no encoder.
  int64_t encoded = 0;
  // The last of the tokens, which are drafts: the model may choose others in their places.
  int64_t drafts = 0;
};

// The tokens of several sequences one after the other, without padding: one row a token.
struct Batch {
  std::vector<TokenId> tokens;
  std::vector<int32_t> positions;
  std::vector<BatchSequence> sequences;

  int64_t rows() const { return static_cast<int64_t>(tokens.size()); }
  // Whether the tokens are the encoder's input, of all sequences.
  bool encodes() const { return !sequences.empty() && sequences[0].past < sequences[0].encoded; }
  // Appends the tokens that follow `past` positions of a sequence of which `length` are known and
  // the first `encoded` are an encoder's input. The decoder counts its positions from 0.
  void append(int64_t past, std::span<const TokenId> next, int64_t length, LogitsOf logits,
              int64_t encoded = 0);
  // Rows whose logits are wanted, ascending.
  std::vector<int32_t> logit_rows() const;
};

}  // namespace klotski
