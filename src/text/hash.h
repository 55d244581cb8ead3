#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace klotski {

// The secret of a hash function. Keys come from files and prompts: whoever knows the function could
// choose them so that they all collide, which makes every table quadratic.
struct HashKey {
  uint64_t add = 0;
  uint64_t multiply = 1;  // odd

  // Drawn at random once per process. Tables keep a copy: they are read in hot loops.
  static HashKey of_process();

  // A hash from both halves of a product with a secret factor: unlike with a public mixing
  // function, no difference of inputs leads to a difference of hashes that could be foretold and
  // cancelled.
  uint64_t hash(uint64_t value) const {
    __extension__ using Product = unsigned __int128;
    const Product product = Product{value ^ add} * multiply;
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  }
  uint64_t hash(std::string_view bytes) const;
};

// A hash function in the form that standard containers take.
struct KeyedHash {
  HashKey key = HashKey::of_process();
  size_t operator()(const std::string& text) const { return key.hash(std::string_view(text)); }
};

}  // namespace klotski
