#include "kv/prefix_pages.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace klotski {
namespace {

std::vector<TokenId> page_of(TokenId token) {
  return std::vector<TokenId>(static_cast<size_t>(kKvPageTokens), token);
}

uint64_t always_equal(uint64_t, std::span<const TokenId>) { return 7; }

TEST(PrefixPages, APageIsFoundAfterItsParentAlone) {
  PrefixPages pages;
  const int32_t first = pages.add(PrefixPages::kRoot, page_of(1), 10);
  const int32_t second = pages.add(first, page_of(2), 11);
  EXPECT_EQ(pages.find(PrefixPages::kRoot, page_of(1)), first);
  EXPECT_EQ(pages.find(first, page_of(2)), second);
  EXPECT_EQ(pages.find(PrefixPages::kRoot, page_of(2)), std::nullopt);
  EXPECT_EQ(pages.find(first, page_of(1)), std::nullopt);
  EXPECT_EQ(pages.page(second), 11);
}

// Tokens decide, whatever their hash is.
TEST(PrefixPages, EqualHashesAreToldApart) {
  PrefixPages pages(&always_equal);
  const int32_t first = pages.add(PrefixPages::kRoot, page_of(1), 10);
  std::vector<TokenId> nearly = page_of(1);
  nearly.back() = 2;
  EXPECT_EQ(pages.find(PrefixPages::kRoot, nearly), std::nullopt);
  EXPECT_EQ(pages.find(first, page_of(1)), std::nullopt) << "another parent";
  const int32_t other = pages.add(PrefixPages::kRoot, nearly, 12);
  const int32_t below = pages.add(first, page_of(1), 13);
  EXPECT_EQ(pages.find(PrefixPages::kRoot, page_of(1)), first);
  EXPECT_EQ(pages.find(PrefixPages::kRoot, nearly), other);
  EXPECT_EQ(pages.find(first, page_of(1)), below);
  pages.let_go(other);
  EXPECT_EQ(pages.remove_least_recent(), 12);
  EXPECT_EQ(pages.find(PrefixPages::kRoot, nearly), std::nullopt);
  EXPECT_EQ(pages.find(PrefixPages::kRoot, page_of(1)), first);
}

TEST(PrefixPages, TheLeastRecentLeafGoesFirst) {
  PrefixPages pages;
  const int32_t root = pages.add(PrefixPages::kRoot, page_of(1), 0);
  const int32_t left = pages.add(root, page_of(2), 1);
  const int32_t right = pages.add(root, page_of(3), 2);
  EXPECT_EQ(pages.held_pages(), 3);
  pages.let_go(root);
  pages.let_go(left);
  pages.let_go(right);
  EXPECT_EQ(pages.idle_pages(), 3);
  pages.hold(left);
  pages.let_go(left);
  EXPECT_EQ(pages.remove_least_recent(), 2) << "the root is older, but no leaf";
  pages.hold(left);
  pages.hold(root);
  EXPECT_EQ(pages.held_pages(), 2);
  EXPECT_EQ(pages.idle_pages(), 0);
  pages.let_go(left);
  pages.let_go(root);
  EXPECT_EQ(pages.remove_least_recent(), 1);
  EXPECT_EQ(pages.remove_least_recent(), 0) << "a leaf by now";
  EXPECT_EQ(pages.idle_pages(), 0);
}

// Random paths: pages that are held are never removed, and every page is removed once in the end.
TEST(PrefixPages, HeldPagesStay) {
  std::mt19937 random(1);
  PrefixPages pages;
  std::vector<std::vector<int32_t>> sequences;
  std::map<int32_t, bool> taken;  // places
  int32_t next_place = 0;
  for (int step = 0; step < 4000; ++step) {
    if (sequences.size() < 8) {
      std::vector<int32_t> path;
      for (int depth = 0; depth < 4; ++depth) {
        const int32_t parent = path.empty() ? PrefixPages::kRoot : path.back();
        const std::vector<TokenId> tokens = page_of(static_cast<TokenId>(random() % 3));
        if (const auto found = pages.find(parent, tokens)) {
          pages.hold(*found);
          path.push_back(*found);
        } else {
          taken[next_place] = true;
          path.push_back(pages.add(parent, tokens, next_place++));
        }
      }
      sequences.push_back(std::move(path));
    } else {
      const size_t ended = random() % sequences.size();
      for (size_t i = sequences[ended].size(); i-- > 0;) pages.let_go(sequences[ended][i]);
      sequences.erase(sequences.begin() + static_cast<std::ptrdiff_t>(ended));
    }
    if (pages.idle_pages() > 10) {
      ASSERT_TRUE(std::exchange(taken[pages.remove_least_recent()], false));
    }
    for (const auto& path : sequences) {
      for (const int32_t node : path) ASSERT_TRUE(taken[pages.page(node)]);
    }
  }
  for (const auto& path : sequences) {
    for (size_t i = path.size(); i-- > 0;) pages.let_go(path[i]);
  }
  EXPECT_EQ(pages.held_pages(), 0);
  while (pages.idle_pages() > 0) {
    ASSERT_TRUE(std::exchange(taken[pages.remove_least_recent()], false));
  }
}

}  // namespace
}  // namespace klotski
