#include "kernels/cuda/free_list.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"

namespace klotski::cuda {
namespace {

constexpr uint64_t kBlock = FreeList::kAlignment;

// Addresses are all it needs: no byte is touched.
std::span<std::byte> arena_at(uintptr_t address, uint64_t bytes) {
  return {reinterpret_cast<std::byte*>(address), bytes};
}

struct Piece {
  std::byte* memory;
  uint64_t bytes;
};

TEST(FreeList, PiecesAreAlignedAndApartAndBecomeOneAgain) {
  constexpr uintptr_t kBegin = 0x10000001;
  constexpr uint64_t kBytes = 1000 * kBlock;
  FreeList list(arena_at(kBegin, kBytes));
  const uint64_t all = list.free_bytes();
  EXPECT_EQ(all, 999 * kBlock);  // the ends of the arena are not aligned
  std::mt19937 random(1);
  std::vector<Piece> pieces;
  for (int step = 0; step < 20000; ++step) {
    if (random() % 2 == 0 || pieces.empty()) {
      const uint64_t bytes = random() % (40 * kBlock);
      if (bytes > list.largest_piece()) continue;
      std::byte* memory = list.take(bytes);
      const auto address = reinterpret_cast<uintptr_t>(memory);
      ASSERT_EQ(address % kBlock, 0u);
      ASSERT_GE(address, kBegin);
      ASSERT_LE(address + bytes, kBegin + kBytes);
      if (bytes == 0) continue;
      for (const Piece& other : pieces) {
        ASSERT_TRUE(memory + bytes <= other.memory || other.memory + other.bytes <= memory);
      }
      pieces.push_back({memory, bytes});
    } else {
      std::swap(pieces[random() % pieces.size()], pieces.back());
      list.give_back(pieces.back().memory, pieces.back().bytes);
      pieces.pop_back();
    }
    ASSERT_LE(list.largest_piece(), list.free_bytes());
  }
  for (const Piece& piece : pieces) list.give_back(piece.memory, piece.bytes);
  EXPECT_EQ(list.free_bytes(), all);
  EXPECT_EQ(list.largest_piece(), all);
}

TEST(FreeList, TakesTheSmallestPieceThatIsLargeEnough) {
  FreeList list(arena_at(kBlock, 100 * kBlock));
  std::byte* large = list.take(10 * kBlock);
  list.take(1);
  std::byte* small = list.take(3 * kBlock);
  list.take(1);
  list.give_back(large, 10 * kBlock);
  list.give_back(small, 3 * kBlock);
  EXPECT_EQ(list.take(3 * kBlock - 5), small);
  EXPECT_EQ(list.take(4 * kBlock), large);
}

TEST(FreeList, SaysWhatIsMissing) {
  FreeList list(arena_at(kBlock, 8 * kBlock));
  std::byte* first = list.take(3 * kBlock);
  list.take(2 * kBlock);
  list.give_back(first, 3 * kBlock);
  for (const uint64_t bytes : {4 * kBlock, UINT64_MAX}) {
    try {
      list.take(bytes);
      FAIL() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::does_not_fit);
      const std::string message = error.what();
      EXPECT_NE(message.find("1.5 KiB are free, 768 B of them in one piece"), std::string::npos)
          << message;
    }
  }
}

TEST(FreeList, NoticesWhatIsGivenBackTwice) {
  FreeList list(arena_at(kBlock, 8 * kBlock));
  std::byte* memory = list.take(2 * kBlock);
  list.give_back(memory, 2 * kBlock);
  EXPECT_THROW(list.give_back(memory, 2 * kBlock), Error);
  EXPECT_THROW(list.give_back(memory + kBlock, 1), Error);
}

TEST(WorkingMemory, TakesFromWhatIsLentAsFarAsItGoes) {
  constexpr uintptr_t kOwn = 0x10000000;
  constexpr uintptr_t kLent = 0x20000000;
  WorkingMemory memory(arena_at(kOwn, 10 * kBlock));
  const auto at = [](const std::byte* piece) { return reinterpret_cast<uintptr_t>(piece); };
  std::byte* early = memory.take(4 * kBlock);
  EXPECT_EQ(at(early), kOwn);
  memory.lend(arena_at(kLent, 8 * kBlock));
  std::byte* first = memory.take(6 * kBlock);
  EXPECT_EQ(at(first), kLent);
  std::byte* second = memory.take(3 * kBlock);  // too large for the lent memory
  EXPECT_EQ(at(second), kOwn + 4 * kBlock);
  EXPECT_THROW(memory.take(4 * kBlock), Error);
  EXPECT_THROW(memory.lend({}), Error);  // a piece is in use
  memory.give_back(first, 6 * kBlock);
  memory.lend({});
  EXPECT_THROW(memory.take(4 * kBlock), Error);
  memory.give_back(early, 4 * kBlock);
  memory.give_back(second, 3 * kBlock);
  EXPECT_EQ(at(memory.take(10 * kBlock)), kOwn);
}

}  // namespace
}  // namespace klotski::cuda
