#pragma once

#include <cstddef>

namespace klotski {

// A span of bytes inside a text.
struct Span {
  size_t begin = 0;
  size_t end = 0;
  bool operator==(const Span&) const = default;
};

}  // namespace klotski
