#include "engine/prompt_lookup.h"

#include <gtest/gtest.h>

#include <random>

#include "base/testing.h"

namespace klotski {
namespace {

using Tokens = std::vector<TokenId>;

TEST(PromptLookup, WhatFollowedTheLastTokensIsTheDraft) {
  EXPECT_EQ(prompt_lookup(Tokens{1, 2, 3, 4, 5, 1, 2}, 3), (Tokens{3, 4, 5}));
  EXPECT_EQ(prompt_lookup(Tokens{1, 2, 3, 4, 5, 1, 2}, 1), (Tokens{3}));
}

TEST(PromptLookup, NoDraftWithoutTwoEqualTokens) {
  EXPECT_EQ(prompt_lookup(Tokens{}, 4), Tokens{});
  EXPECT_EQ(prompt_lookup(Tokens{7}, 4), Tokens{});
  EXPECT_EQ(prompt_lookup(Tokens{7, 7}, 4), Tokens{});
  EXPECT_EQ(prompt_lookup(Tokens{1, 2, 3, 2}, 4), Tokens{}) << "one equal token is too few";
  EXPECT_EQ(prompt_lookup(Tokens{1, 2, 3, 1, 2}, 0), Tokens{});
}

TEST(PromptLookup, TheLongestMatchCountsThenTheLatest) {
  // "1 2 3" is followed by 9; the later "2 3" by 8.
  EXPECT_EQ(prompt_lookup(Tokens{1, 2, 3, 9, 5, 2, 3, 8, 1, 2, 3}, 1), (Tokens{9}));
  EXPECT_EQ(prompt_lookup(Tokens{2, 3, 9, 2, 3, 8, 5, 2, 3}, 1), (Tokens{8}));
}

TEST(PromptLookup, ARepetitionIsForetoldBeyondTheEndOfTheText) {
  EXPECT_EQ(prompt_lookup(Tokens{4, 4, 4}, 5), (Tokens{4, 4, 4, 4, 4}));
  EXPECT_EQ(prompt_lookup(Tokens{1, 2, 3, 1, 2, 3, 1}, 7), (Tokens{2, 3, 1, 2, 3, 1, 2}));
}

// The definition, by trying every place for every length.
Tokens plain_lookup(const Tokens& text, int64_t most) {
  const auto size = static_cast<int64_t>(text.size());
  for (int64_t equal = 8; equal >= 2; --equal) {
    for (int64_t end = size - 1; end >= equal; --end) {
      if (!std::equal(text.begin() + (end - equal), text.begin() + end, text.end() - equal)) {
        continue;
      }
      Tokens longer = text;
      for (int64_t i = 0; i < most; ++i) longer.push_back(longer[static_cast<size_t>(end + i)]);
      return {longer.end() - most, longer.end()};
    }
  }
  return {};
}

TEST(PromptLookup, EqualsItsDefinition) {
  std::mt19937_64 random(5);
  for (int trial = 0; trial < trials(3000); ++trial) {
    Tokens text(random() % 40);
    const uint64_t kinds = 1 + random() % 4;
    for (TokenId& token : text) token = static_cast<TokenId>(random() % kinds);
    const auto most = static_cast<int64_t>(random() % 6);
    ASSERT_EQ(prompt_lookup(text, most), most == 0 ? Tokens{} : plain_lookup(text, most));
  }
}

}  // namespace
}  // namespace klotski
