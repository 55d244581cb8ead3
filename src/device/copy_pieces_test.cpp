#include "device/copy_pieces.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace klotski {
namespace {

TEST(EvenParts, AreAllBytesOnceAndNoneIsLarge) {
  std::mt19937_64 random(3);
  std::vector<std::byte> from(100'000);
  for (std::byte& byte : from) byte = static_cast<std::byte>(random());
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<std::byte> to(from.size(), std::byte{0xA5});
    std::vector<std::byte> expected = to;
    std::vector<CopyPiece> pieces;
    uint64_t bytes = 0;
    const uint64_t longest = 1 + random() % 5000;
    for (uint64_t at = 0; at + longest < from.size() && pieces.size() < random() % 300;) {
      const uint64_t size = random() % 5 == 0 ? longest : random() % 50;
      pieces.push_back({to.data() + at, from.data() + at, size});
      std::copy_n(from.data() + at, size, expected.data() + at);
      bytes += size;
      at += size + random() % 20;
    }
    const uint64_t parts = 1 + random() % 80;
    const std::vector<CopyPiece> found = even_parts(pieces, parts);
    EXPECT_LE(found.size(), parts + pieces.size());
    uint64_t copied = 0;
    for (const CopyPiece& part : found) {
      EXPECT_GT(part.bytes, 0u);
      EXPECT_LT(part.bytes, bytes / parts + 1 + kPartAlignment);
      std::copy_n(part.from, part.bytes, part.to);
      copied += part.bytes;
    }
    EXPECT_EQ(copied, bytes);
    EXPECT_TRUE(to == expected);
  }
}

TEST(EvenParts, BeginAsFarFromABoundaryAsTheirCopies) {
  std::vector<std::byte> memory(4096);
  const CopyPiece piece{memory.data() + 5, memory.data() + 2048 + 5, 1000};
  for (const CopyPiece& part : even_parts(std::span(&piece, 1), 7)) {
    EXPECT_EQ(static_cast<uint64_t>(part.to - piece.to) % kPartAlignment, 0u);
    EXPECT_EQ(part.to - piece.to, part.from - piece.from);
  }
  EXPECT_TRUE(even_parts({}, 4).empty());
}

}  // namespace
}  // namespace klotski
