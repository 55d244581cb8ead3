#include "base/content_hash.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>

#include "base/noise.h"

namespace klotski {

void ContentHash::add(uint64_t number) {
  lanes_[0] = mix(lanes_[0] ^ number) + kNoiseStep;
  lanes_[1] = mix(lanes_[1] + std::rotl(number, 29)) ^ kNoiseStep;
}

void ContentHash::add(std::string_view text) {
  add(uint64_t{text.size()});  // texts that are cut elsewhere have another hash
  for (; text.size() >= 8; text.remove_prefix(8)) {
    uint64_t word = 0;
    std::memcpy(&word, text.data(), 8);
    add(std::endian::native == std::endian::little ? word : __builtin_bswap64(word));
  }
  uint64_t rest = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    rest |= uint64_t{static_cast<unsigned char>(text[i])} << (8 * i);
  }
  add(rest);
}

std::string ContentHash::text() const {
  return fmt::format("{:016x}{:016x}", mix(lanes_[0]), mix(lanes_[1] ^ lanes_[0]));
}

}  // namespace klotski
