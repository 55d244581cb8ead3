#include "tensor/compact.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace klotski {

namespace {

constexpr int64_t kHalfBlock = kCompactBlock / 2;
constexpr int64_t kRun = 8;  // columns whose places follow each other

struct Listed {
  uint16_t column;
  uint16_t bits;
};
static_assert(sizeof(Listed) == 4);

// The place where a run of columns of a block begins.
constexpr int64_t place_of(int64_t column) {
  return column < kHalfBlock ? 2 * column : 2 * (column - kHalfBlock) + kRun;
}

// The exponent without its lowest bit.
uint8_t upper_bits(uint16_t bits) { return static_cast<uint8_t>(bits >> 8 & 0x7F); }

using Counts = std::array<uint32_t, 128>;

// The least of the upper bits that most numbers of the row have.
uint8_t least_upper(std::span<const uint16_t> row) {
  // Neighbours often have equal upper bits: with one array of counts, each increment would wait for
  // the last.
  std::array<Counts, 4> parts{};
  for (size_t i = 0; i < row.size(); ++i) ++parts[i % parts.size()][upper_bits(row[i])];
  std::array<int64_t, 128> counts{};
  for (const Counts& part : parts) {
    for (size_t i = 0; i < counts.size(); ++i) counts[i] += part[i];
  }
  int64_t here = 0;
  for (size_t i = 0; i < kCompactUppers; ++i) here += counts[i];
  int64_t most = here;
  size_t best = 0;
  for (size_t first = 1; first + kCompactUppers <= counts.size(); ++first) {
    here += counts[first + kCompactUppers - 1] - counts[first - 1];
    if (here <= most) continue;
    most = here;
    best = first;
  }
  return static_cast<uint8_t>(best);
}

uint8_t code_of(uint16_t bits, uint8_t least) {
  return static_cast<uint8_t>((bits >> 12 & 8) | (upper_bits(bits) - least));
}

// A block whose numbers all have a code; false, and no block, where some have none. Without
// branches, so that compilers have vectors for it.
bool compact_block(const uint16_t* row, uint8_t least, uint8_t* block) {
  uint8_t codes[kCompactBlock];
  unsigned beyond = 0;
  for (int64_t column = 0; column < kCompactBlock; column += kRun) {
    const int64_t place = place_of(column);
    for (int64_t i = 0; i < kRun; ++i) {
      const uint16_t bits = row[column + i];
      beyond |= static_cast<uint8_t>(upper_bits(bits) - least);
      block[place + i] = static_cast<uint8_t>(bits);
      codes[place + i] = code_of(bits, least);
    }
  }
  for (int64_t i = 0; i < kHalfBlock; ++i) {
    block[kCompactBlock + i] = static_cast<uint8_t>(codes[i] | codes[kHalfBlock + i] << 4);
  }
  return beyond < kCompactUppers;
}

}  // namespace

bool compact_row(std::span<const uint16_t> row, std::byte* out) {
  const auto columns = static_cast<int64_t>(row.size());
  if (columns > kMostCompactColumns) return false;
  std::memset(out, 0, static_cast<size_t>(compact_header_bytes(columns)));
  const uint8_t least = least_upper(row);
  auto* block = reinterpret_cast<uint8_t*>(out + compact_header_bytes(columns));
  uint16_t listed = 0;
  for (int64_t begin = 0; begin < columns; begin += kCompactBlock, block += kCompactBlockBytes) {
    const int64_t count = std::min(kCompactBlock, columns - begin);
    if (count == kCompactBlock && compact_block(&row[static_cast<size_t>(begin)], least, block)) {
      continue;
    }
    std::memset(block, 0, kCompactBlockBytes);
    for (int64_t at = 0; at < count; ++at) {
      const uint16_t bits = row[static_cast<size_t>(begin + at)];
      const int above = upper_bits(bits) - least;
      const int64_t place = place_of(at / kRun * kRun) + at % kRun;
      if (above >= 0 && above < kCompactUppers) {
        const int code = code_of(bits, least);
        block[place] = static_cast<uint8_t>(bits);
        block[kCompactBlock + place % kHalfBlock] |=
            static_cast<uint8_t>(place < kHalfBlock ? code : code << 4);
        continue;
      }
      if (listed == most_compact_listed(columns)) return false;
      const Listed number = {static_cast<uint16_t>(begin + at), bits};
      ++listed;
      std::memcpy(out + listed * sizeof(Listed), &number, sizeof(number));
    }
  }
  out[0] = static_cast<std::byte>(least);
  std::memcpy(out + 2, &listed, sizeof(listed));
  return true;
}

void expand_row(const std::byte* row, int64_t columns, int64_t first, std::span<uint16_t> out) {
  const auto* block = reinterpret_cast<const uint8_t*>(row + compact_header_bytes(columns)) +
                      first / kCompactBlock * kCompactBlockBytes;
  std::array<uint16_t, 16> uppers;  // upper bits by code
  for (size_t code = 0; code < uppers.size(); ++code) {
    const auto above = static_cast<unsigned>(code % kCompactUppers);
    const unsigned upper = (std::to_integer<unsigned>(row[0]) + above) & 0x7F;
    uppers[code] = static_cast<uint16_t>((code < kCompactUppers ? upper : upper | 0x80) << 8);
  }
  const auto count = static_cast<int64_t>(out.size());
  for (int64_t begin = 0; begin < count; begin += kRun) {
    const int64_t column = begin % kCompactBlock;
    const int64_t place = place_of(column);
    const uint8_t* codes = block + kCompactBlock + place % kHalfBlock;
    const int shift = place < kHalfBlock ? 0 : 4;
    for (int64_t i = 0; i < std::min(kRun, count - begin); ++i) {
      out[static_cast<size_t>(begin + i)] =
          static_cast<uint16_t>(uppers[codes[i] >> shift & 15] | block[place + i]);
    }
    if (column + kRun == kCompactBlock) block += kCompactBlockBytes;
  }
  uint16_t listed = 0;
  std::memcpy(&listed, row + 2, sizeof(listed));
  const int64_t most = std::min<int64_t>(listed, most_compact_listed(columns));
  for (int64_t i = 0; i < most; ++i) {
    Listed number;
    std::memcpy(&number, row + (i + 1) * static_cast<int64_t>(sizeof(number)), sizeof(number));
    const int64_t at = number.column - first;
    if (at >= 0 && at < count) out[static_cast<size_t>(at)] = number.bits;
  }
}

}  // namespace klotski
