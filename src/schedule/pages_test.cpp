#include "schedule/pages.h"

#include <gtest/gtest.h>

#include <random>

namespace klotski {
namespace {

// Every byte of every unit once, in order; pages as large as each other but for the last.
TEST(PageTable, CoversEveryUnitInPagesOfOneSize) {
  std::mt19937_64 random(3);
  for (int trial = 0; trial < 500; ++trial) {
    std::vector<PagedUnit> units;
    for (uint64_t e = 0; e < random() % 10; ++e) {
      units.push_back({{UnitKind::expert, LayerId(1), ExpertId(static_cast<int64_t>(e))},
                       1 + random() % 100000});
    }
    const auto pages = static_cast<int64_t>(1 + random() % 7);
    const PageTable table = page_table(units, pages);
    ASSERT_EQ(std::ssize(table), pages);
    std::vector<PagePiece> pieces;
    std::vector<uint64_t> sizes;
    for (const std::vector<PagePiece>& page : table) {
      sizes.push_back(0);
      for (const PagePiece& piece : page) {
        EXPECT_GT(piece.bytes, 0u);
        sizes.back() += piece.bytes;
        pieces.push_back(piece);
      }
    }
    size_t next = 0;
    for (const PagedUnit& unit : units) {
      uint64_t covered = 0;
      for (; next < pieces.size() && pieces[next].unit == unit.unit; ++next) {
        EXPECT_EQ(pieces[next].offset, covered);
        covered += pieces[next].bytes;
      }
      EXPECT_EQ(covered, unit.bytes);
    }
    EXPECT_EQ(next, pieces.size());
    for (size_t page = 0; page + 1 < sizes.size(); ++page) EXPECT_GE(sizes[page], sizes[page + 1]);
  }
}

TEST(PageTable, NothingToLoadIsEmptyPages) {
  const PageTable table = page_table({}, 3);
  ASSERT_EQ(table.size(), 3u);
  for (const auto& page : table) EXPECT_TRUE(page.empty());
}

}  // namespace
}  // namespace klotski
