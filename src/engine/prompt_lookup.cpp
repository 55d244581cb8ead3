#include "engine/prompt_lookup.h"

#include <algorithm>

namespace klotski {

namespace {

// Fewer equal tokens foretell little; more than the most change the choice seldom.
constexpr int64_t kLeastEqual = 2;
constexpr int64_t kMostEqual = 8;

}  // namespace

std::vector<TokenId> prompt_lookup(std::span<const TokenId> text, int64_t most) {
  if (most <= 0) return {};
  const int64_t size = std::ssize(text);
  const auto at = [&](int64_t place) { return text[static_cast<size_t>(place)]; };
  int64_t best = kLeastEqual - 1;
  int64_t follows = 0;  // place of the token that followed the best match
  for (int64_t end = size - 1; end > best && best < kMostEqual; --end) {
    int64_t equal = 0;
    while (equal < std::min(end, kMostEqual) && at(end - 1 - equal) == at(size - 1 - equal)) {
      ++equal;
    }
    if (equal <= best) continue;
    best = equal;
    follows = end;
  }
  if (best < kLeastEqual) return {};
  std::vector<TokenId> draft;
  const int64_t period = size - follows;
  for (int64_t i = 0; i < most; ++i) draft.push_back(at(follows + i % period));
  return draft;
}

}  // namespace klotski
