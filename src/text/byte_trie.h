#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "text/flat_map.h"

namespace klotski {

// A set of byte strings, each with a value that is not negative, to find the strings that begin a
// text.
class ByteTrie {
 public:
  void insert(std::string_view key, int32_t value);

  // Follows one byte from `node` (0 is the root); -1 where no key goes on that way.
  int32_t step(int32_t node, char byte) const {
    const int32_t* next = edges_.find(edge(node, byte));
    return next ? *next : -1;
  }
  // The value of the key that ends at `node`, or -1.
  int32_t value(int32_t node) const { return values_[static_cast<size_t>(node)]; }

  bool empty() const { return values_.size() == 1; }

  struct Match {
    size_t bytes = 0;  // 0: no key begins here
    int32_t value = -1;
  };
  // The longest key that begins at text[at].
  Match longest(std::string_view text, size_t at) const;

 private:
  static uint64_t edge(int32_t node, char byte) {
    return (static_cast<uint64_t>(node) << 8) | static_cast<unsigned char>(byte);
  }

  FlatMap<int32_t> edges_;
  std::vector<int32_t> values_ = {-1};
  bool first_bytes_[256] = {};
};

}  // namespace klotski
