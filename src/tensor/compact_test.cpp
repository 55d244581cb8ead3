#include "tensor/compact.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "tensor/half.h"

namespace klotski {
namespace {

std::vector<uint16_t> normal_row(int64_t columns, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> weights(0.0f, 0.02f);
  std::vector<uint16_t> row(static_cast<size_t>(columns));
  for (uint16_t& bits : row) bits = float_to_bf16(weights(random));
  return row;
}

std::vector<uint16_t> there_and_back(const std::vector<uint16_t>& row) {
  const auto columns = static_cast<int64_t>(row.size());
  std::vector<std::byte> compact(static_cast<size_t>(compact_row_bytes(columns)));
  EXPECT_TRUE(compact_row(row, compact.data()));
  std::vector<uint16_t> back(row.size());
  expand_row(compact.data(), columns, 0, back);
  return back;
}

TEST(Compact, EveryBitComesBack) {
  for (const int64_t columns : {1, 31, 32, 33, 63, 64, 65, 100, 128, 768, 2048, 4096, 14336}) {
    for (uint64_t seed = 0; seed < 20; ++seed) {
      const std::vector<uint16_t> row = normal_row(columns, seed);
      ASSERT_EQ(there_and_back(row), row) << columns << " columns, seed " << seed;
    }
  }
}

TEST(Compact, TakesThreeQuarters) {
  for (const int64_t columns : {1024, 2048, 4096, 14336, 16384}) {
    const auto plain = static_cast<double>(2 * columns);
    EXPECT_LT(static_cast<double>(compact_row_bytes(columns)), 0.775 * plain) << columns;
    EXPECT_EQ(compact_row_bytes(columns) % 16, 0);
  }
}

// Zeros, denormals, infinities and numbers that are none are listed; so are outliers.
TEST(Compact, OddNumbersAreListed) {
  std::vector<uint16_t> row = normal_row(4096, 1);
  const float odd[] = {0.0f,
                       -0.0f,
                       1e-40f,
                       1e38f,
                       -3e5f,
                       std::numeric_limits<float>::infinity(),
                       -std::numeric_limits<float>::infinity()};
  size_t at = 5;
  for (const float value : odd) {
    row[at] = float_to_bf16(value);
    at += 585;
  }
  row.back() = 0x7FC1;   // NaN
  row.front() = 0xFF81;  // another NaN
  EXPECT_EQ(there_and_back(row), row);
}

TEST(Compact, SixteenExponentsAtEitherEndOfTheirRange) {
  for (const int first : {0, 2, 238, 240}) {
    std::vector<uint16_t> row(256);
    for (size_t i = 0; i < row.size(); ++i) {
      row[i] = static_cast<uint16_t>((first + i % 16) << 7 | (i * 37 % 128) | (i % 3 ? 0 : 0x8000));
    }
    EXPECT_EQ(there_and_back(row), row) << first;
  }
}

// The format as files have it: it must never change.
TEST(Compact, TheFormatByHand) {
  std::vector<uint16_t> row(64);
  for (size_t i = 0; i < row.size(); ++i) row[i] = static_cast<uint16_t>(0x3D00 + i);
  row[3] = 0xC2FF;  // the largest, with a sign
  row[40] = 0;      // listed
  row[41] = 0x4200;
  std::vector<std::byte> bytes(static_cast<size_t>(compact_row_bytes(64)), std::byte{0xEE});
  ASSERT_TRUE(compact_row(row, bytes.data()));
  const auto at = [&](size_t i) { return std::to_integer<int>(bytes[i]); };
  for (const auto& [i, expected] : std::vector<std::pair<size_t, int>>{
           {0, 0x3B}, {2, 1}, {3, 0}, {4, 40}, {5, 0}, {6, 0}, {7, 0}, {8, 0}, {31, 0}}) {
    EXPECT_EQ(at(i), expected) << "byte " << i << " of the header";
  }
  constexpr size_t kPlaces = 32;
  constexpr size_t kCodes = kPlaces + 64;
  EXPECT_EQ(at(kPlaces + 3), 0xFF);
  EXPECT_EQ(at(kPlaces + 8), 32);    // column 32 after columns 0 to 7
  EXPECT_EQ(at(kPlaces + 16), 8);    // then columns 8 to 15
  EXPECT_EQ(at(kPlaces + 25), 0);    // column 41
  EXPECT_EQ(at(kPlaces + 63), 63);   // the last
  EXPECT_EQ(at(kCodes + 3), 0x2F);   // columns 3 and 19
  EXPECT_EQ(at(kCodes + 24), 0x20);  // columns 40 and 56
  EXPECT_EQ(at(kCodes + 25), 0x27);  // columns 41 and 57
}

TEST(Compact, ARowIsRefusedWhereItsListIsFull) {
  const int64_t columns = 4096;
  const int64_t room = most_compact_listed(columns);
  std::vector<uint16_t> row(columns, float_to_bf16(1.0f));
  std::vector<std::byte> compact(static_cast<size_t>(compact_row_bytes(columns)));
  for (int64_t i = 0; i < room; ++i) row[static_cast<size_t>(i * 64)] = 0;
  EXPECT_EQ(there_and_back(row), row);
  row[1] = 0;
  EXPECT_FALSE(compact_row(row, compact.data()));
  EXPECT_FALSE(compact_row(std::vector<uint16_t>(kMostCompactColumns + 1), nullptr));
}

TEST(Compact, PartsOfARow) {
  const int64_t columns = 1000;
  const std::vector<uint16_t> row = normal_row(columns, 3);
  std::vector<std::byte> compact(static_cast<size_t>(compact_row_bytes(columns)));
  ASSERT_TRUE(compact_row(row, compact.data()));
  for (const int64_t first : {0, 64, 640, 960}) {
    for (const int64_t count : {1, 17, 40}) {
      std::vector<uint16_t> part(static_cast<size_t>(count));
      expand_row(compact.data(), columns, first, part);
      EXPECT_EQ(part, std::vector<uint16_t>(row.begin() + first, row.begin() + first + count));
    }
  }
}

// Any bytes are a row of some numbers.
TEST(Compact, WrongBytesAreReadWithinTheRow) {
  std::mt19937_64 random(7);
  for (const int64_t columns : {64, 100, 4096}) {
    std::vector<std::byte> bytes(static_cast<size_t>(compact_row_bytes(columns)));
    for (int round = 0; round < 50; ++round) {
      for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
      std::vector<uint16_t> out(static_cast<size_t>(columns + 2), 0x1234);
      expand_row(bytes.data(), columns, 0, std::span(out).subspan(1, static_cast<size_t>(columns)));
      EXPECT_EQ(out.front(), 0x1234);
      EXPECT_EQ(out.back(), 0x1234);
      // Only the numbers that the header lists differ from the blocks, in the order listed.
      std::vector<std::byte> unlisted = bytes;
      unlisted[2] = unlisted[3] = std::byte{0};
      std::vector<uint16_t> expected(static_cast<size_t>(columns));
      expand_row(unlisted.data(), columns, 0, expected);
      const auto number = [&](int64_t at) {
        return std::to_integer<int>(bytes[static_cast<size_t>(at)]) |
               std::to_integer<int>(bytes[static_cast<size_t>(at + 1)]) << 8;
      };
      for (int64_t i = 1; i <= std::min<int64_t>(number(2), most_compact_listed(columns)); ++i) {
        const auto column = static_cast<size_t>(number(4 * i));
        if (column < expected.size()) expected[column] = static_cast<uint16_t>(number(4 * i + 2));
      }
      EXPECT_TRUE(std::equal(expected.begin(), expected.end(), out.begin() + 1));
    }
  }
}

}  // namespace
}  // namespace klotski
