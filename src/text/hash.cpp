#include "text/hash.h"

#include <chrono>
#include <cstring>
#include <random>

#include "base/error.h"
#include "base/random_bits.h"

namespace klotski {

namespace {

HashKey draw_key() {
  try {
    const uint64_t add = random_bits();
    return {add, random_bits() | 1};
  } catch (const Error&) {  // no source of randomness: the time is better than nothing
    const auto now = std::chrono::high_resolution_clock::now().time_since_epoch().count();
    std::mt19937_64 random(static_cast<uint64_t>(now));
    const uint64_t add = random();
    return {add, random() | 1};
  }
}

}  // namespace

HashKey HashKey::of_process() {
  static const HashKey kKey = draw_key();
  return kKey;
}

uint64_t HashKey::hash(std::string_view bytes) const {
  uint64_t state = hash(bytes.size());
  for (uint64_t word; bytes.size() >= sizeof word; bytes.remove_prefix(sizeof word)) {
    std::memcpy(&word, bytes.data(), sizeof word);
    state = hash(state ^ word);
  }
  uint64_t tail = 0;
  for (const char byte : bytes) tail = (tail << 8) | static_cast<unsigned char>(byte);
  return hash(state ^ tail);
}

}  // namespace klotski
