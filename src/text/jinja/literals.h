#pragma once

#include <string>
#include <string_view>

#include "text/jinja/value.h"

namespace klotski::jinja {

struct NumberLiteral {
  Value value;
  size_t size = 0;    // bytes read
  std::string error;  // not empty: why it is no number
};

// The number `text` begins with: decimal, 0x, 0o, 0b, underscores between digits, floats where
// `allow_real`.
NumberLiteral read_number(std::string_view text, bool allow_real);

// The inside of a string literal with Python's escapes resolved; unknown ones stay as they are.
std::string unescape(std::string_view text, std::string* error);

}  // namespace klotski::jinja
