#include "forward/batch.h"

namespace klotski {

void Batch::append(int64_t past, std::span<const TokenId> next, int64_t length, LogitsOf logits,
                   int64_t encoded) {
  sequences.push_back({.first_row = rows(),
                       .tokens = static_cast<int64_t>(next.size()),
                       .past = past,
                       .length = length,
                       .logits = logits,
                       .encoded = encoded});
  const int64_t first = past < encoded ? past : past - encoded;
  for (size_t i = 0; i < next.size(); ++i) {
    positions.push_back(static_cast<int32_t>(first + static_cast<int64_t>(i)));
  }
  tokens.insert(tokens.end(), next.begin(), next.end());
}

std::vector<int32_t> Batch::logit_rows() const {
  std::vector<int32_t> rows;
  for (const BatchSequence& sequence : sequences) {
    const int64_t end = sequence.first_row + sequence.tokens;
    const int64_t wanted = sequence.logits == LogitsOf::every_token  ? sequence.tokens
                           : sequence.logits == LogitsOf::last_token ? 1
                                                                     : 0;
    for (int64_t row = end - wanted; row < end; ++row) rows.push_back(static_cast<int32_t>(row));
  }
  return rows;
}

}  // namespace klotski
