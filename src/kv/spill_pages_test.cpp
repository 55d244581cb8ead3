#include "kv/spill_pages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <set>

#include "kv/testing.h"

namespace klotski {
namespace {

const std::vector<uint64_t> kPages = {100, 5000};  // one and two blocks
constexpr uint64_t kPlaceBytes = 3 * kDirectAlignment;

SpillPages pages_of(uint64_t limit) { return SpillPages(limit, kPages, testing::file_store()); }

TEST(SpillPages, CountsWholePlacesWithinTheLimit) {
  EXPECT_EQ(pages_of(0).capacity(), 0);
  EXPECT_EQ(pages_of(kPlaceBytes - 1).capacity(), 0);
  SpillPages pages = pages_of(5 * kPlaceBytes - 1);
  EXPECT_EQ(pages.capacity(), 4);
  EXPECT_EQ(pages.page_bytes(LayerId(0)), kDirectAlignment);
  EXPECT_EQ(pages.page_bytes(LayerId(1)), 2 * kDirectAlignment);
  EXPECT_EQ(pages.layers(), 2);
  EXPECT_FALSE(pages.take(5));
  EXPECT_EQ(pages.in_use(), 0) << "a refusal takes nothing";
}

TEST(SpillPages, PlacesAreNeighboursWhereThereIsAGap) {
  SpillPages pages = pages_of(8 * kPlaceBytes);
  const auto a = pages.take(3);
  const auto b = pages.take(2);
  const auto c = pages.take(3);
  pages.give_back(*a);
  EXPECT_EQ(*pages.take(2), (std::vector<int32_t>{0, 1}));
  pages.give_back(*c);
  EXPECT_EQ(*pages.take(3), (std::vector<int32_t>{5, 6, 7})) << "not 2, which stands alone";
  pages.give_back(std::vector<int32_t>{6});
  EXPECT_EQ(*pages.take(2), (std::vector<int32_t>{2, 6})) << "what is left, where no gap is";
  EXPECT_FALSE(pages.take(1));
}

TEST(SpillPages, RandomUseNeverHandsOutAPlaceTwice) {
  SpillPages pages = pages_of(20 * kPlaceBytes);
  std::mt19937 random(1);
  std::vector<std::vector<int32_t>> held;
  std::set<int32_t> taken;
  for (int step = 0; step < 2000; ++step) {
    if (!held.empty() && random() % 2 == 0) {
      const size_t i = random() % held.size();
      pages.give_back(held[i]);
      for (const int32_t place : held[i]) taken.erase(place);
      held.erase(held.begin() + static_cast<ptrdiff_t>(i));
      continue;
    }
    const auto count = static_cast<int64_t>(random() % 7);
    auto places = pages.take(count);
    ASSERT_EQ(places.has_value(), count + static_cast<int64_t>(taken.size()) <= 20);
    if (!places) continue;
    ASSERT_TRUE(std::is_sorted(places->begin(), places->end()));
    for (const int32_t place : *places) ASSERT_TRUE(taken.insert(place).second);
    held.push_back(std::move(*places));
    ASSERT_EQ(pages.in_use(), static_cast<int64_t>(taken.size()));
  }
}

TEST(SpillPages, LayersAndPlacesDoNotOverlap) {
  SpillPages pages = pages_of(4 * kPlaceBytes);
  testing::StageBuffer buffer(2 * kDirectAlignment);
  const auto block = [&](LayerId layer) { return buffer.bytes().first(pages.page_bytes(layer)); };
  for (int32_t layer = 0; layer < 2; ++layer) {
    for (int32_t place = 0; place < 4; ++place) {
      const auto bytes = block(LayerId(layer));
      std::memset(bytes.data(), 1 + layer * 4 + place, bytes.size());
      const SpillPages::Run run{place, bytes};
      pages.write(LayerId(layer), std::span(&run, 1));
    }
  }
  for (int32_t layer = 0; layer < 2; ++layer) {
    for (int32_t place = 0; place < 4; ++place) {
      const auto bytes = block(LayerId(layer));
      const SpillPages::Run run{place, bytes};
      pages.read(LayerId(layer), std::span(&run, 1));
      for (const std::byte byte : bytes) ASSERT_EQ(byte, std::byte(1 + layer * 4 + place));
    }
  }
}

}  // namespace
}  // namespace klotski
