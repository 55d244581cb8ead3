#include "memory/arena.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "memory/alignment.h"

namespace klotski {
namespace {

// Fails call number `failing`, counted from 1.
class FailingMap : public MapCalls {
 public:
  explicit FailingMap(int failing) : failing_(failing) {}
  void* map(size_t bytes) override {
    if (++calls == failing_) {
      errno = ENOMEM;
      return nullptr;
    }
    return MapCalls::map(bytes);
  }
  int calls = 0;

 private:
  int failing_;
};

TEST(Alignment, RangeIsTheSmallestAlignedOneAround) {
  for (const uint64_t offset : {0, 1, 4095, 4096, 4097, 12288, 1000003}) {
    for (const uint64_t bytes : {1, 2, 4095, 4096, 4097, 8192, 777777}) {
      const AlignedRange range = aligned_range(offset, bytes);
      EXPECT_TRUE(is_aligned(range.offset) && is_aligned(range.bytes));
      EXPECT_EQ(range.offset + range.skip, offset);
      EXPECT_LT(range.skip, kDirectAlignment);
      EXPECT_GE(range.bytes, range.skip + bytes);
      EXPECT_LT(range.bytes, range.skip + bytes + kDirectAlignment);
    }
  }
  EXPECT_EQ(aligned_range(5000, 0).bytes, 0u);
}

TEST(Arena, IsZeroedAlignedAndAccounted) {
  Tier tier("ram", 10 * kMiB);
  {
    Arena arena(tier, "buffers", 3 * kMiB + 1);
    EXPECT_EQ(arena.bytes().size(), 3 * kMiB + 1);
    EXPECT_TRUE(is_aligned(arena.bytes().data()));
    EXPECT_TRUE(std::all_of(arena.bytes().begin(), arena.bytes().end(),
                            [](std::byte b) { return b == std::byte{0}; }));
    EXPECT_EQ(tier.used_bytes(), 3 * kMiB + 1);
    Arena moved = std::move(arena);
    moved.bytes().back() = std::byte{7};
    EXPECT_EQ(tier.used_bytes(), 3 * kMiB + 1);
    moved = Arena(tier, "buffers", 0);
    EXPECT_TRUE(moved.bytes().empty());
    EXPECT_EQ(tier.used_bytes(), 0u);
  }
  EXPECT_THROW(Arena(tier, "buffers", 11 * kMiB), Error);
  EXPECT_EQ(tier.used_bytes(), 0u);
}

TEST(Arena, TakesPagesOnlyWhenTouched) {
  Tier tier("ram", UINT64_MAX);
  const Arena arena(tier, "buffers", kGiB);
  arena.bytes()[kGiB / 2] = std::byte{1};
  const auto page_bytes = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> resident(kGiB / page_bytes);
  ASSERT_EQ(::mincore(arena.bytes().data(), kGiB, resident.data()), 0);
  const auto pages = std::count_if(resident.begin(), resident.end(),
                                   [](unsigned char page) { return (page & 1) != 0; });
  EXPECT_GE(pages, 1);
  EXPECT_LE(static_cast<uint64_t>(pages) * page_bytes, 2 * kMiB);
}

TEST(Arena, WhatTheSystemRefusesDoesNotFit) {
  Tier tier("ram", UINT64_MAX);
  try {
    const Arena arena(tier, "buffers", uint64_t{1} << 60);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::does_not_fit);
  }
  EXPECT_EQ(tier.used_bytes(), 0u);
}

TEST(Arena, EveryFailingMapLeavesNothingReserved) {
  constexpr int kArenas = 4;
  for (int failing = 1; failing <= kArenas + 1; ++failing) {
    Tier tier("ram", kMiB);
    FailingMap calls(failing);
    const ScopedMapCalls in_force(calls);
    std::vector<Arena> arenas;
    try {
      for (int i = 0; i < kArenas; ++i) arenas.emplace_back(tier, "buffers", 8192);
      EXPECT_EQ(failing, kArenas + 1);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::does_not_fit);
      EXPECT_NE(std::string(error.what()).find("buffers"), std::string::npos);
      EXPECT_EQ(arenas.size(), static_cast<size_t>(failing - 1));
    }
    EXPECT_EQ(tier.used_bytes(), 8192 * arenas.size());
  }
}

TEST(BufferPool, BuffersAreAlignedAndApart) {
  Tier tier("ram", kMiB);
  const BufferPool pool(tier, "staging", 5, 5000);
  EXPECT_EQ(pool.count(), 5);
  EXPECT_EQ(pool.buffer_bytes(), 8192u);
  EXPECT_EQ(tier.used_bytes(), 5 * 8192u);
  for (int64_t i = 0; i < pool.count(); ++i) {
    EXPECT_TRUE(is_aligned(pool.buffer(i).data()));
    EXPECT_EQ(pool.buffer(i).size(), 8192u);
    std::fill(pool.buffer(i).begin(), pool.buffer(i).end(), static_cast<std::byte>(i));
  }
  for (int64_t i = 0; i < pool.count(); ++i) {
    EXPECT_EQ(pool.buffer(i).front(), static_cast<std::byte>(i));
    EXPECT_EQ(pool.buffer(i).back(), static_cast<std::byte>(i));
  }
  EXPECT_THROW(pool.buffer(5), Error);
  EXPECT_THROW(pool.buffer(-1), Error);
}

TEST(BufferPool, SizesThatOverflowDoNotFit) {
  Tier tier("ram", UINT64_MAX);
  EXPECT_THROW(BufferPool(tier, "staging", 1, UINT64_MAX), Error);
  EXPECT_THROW(BufferPool(tier, "staging", int64_t{1} << 40, uint64_t{1} << 40), Error);
  EXPECT_THROW(BufferPool(tier, "staging", -1, 4096), Error);
  EXPECT_EQ(BufferPool(tier, "staging", 0, 4096).count(), 0);
  EXPECT_EQ(tier.used_bytes(), 0u);
}

}  // namespace
}  // namespace klotski
