#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "text/jinja/runtime.h"

namespace klotski::jinja {

// How one value is laid out, by a %-directive or by a replacement field in braces.
struct FormatSpec {
  std::string fill = " ";
  char align = 0;  // < > ^ or =, 0: the type's default
  char sign = '-';
  bool alternate = false;
  bool zero = false;  // pad numbers with zeros
  int64_t width = 0;
  int64_t precision = -1;
  char grouping = 0;
  char type = 0;
};

// Digits without sign or padding. `type` is one of d o x X b, of e E f F g G %.
std::string integer_digits(uint64_t magnitude, const FormatSpec& spec);
std::string real_digits(double magnitude, const FormatSpec& spec);

// Pads `prefix` + `body` to the width; '=' pads between the two.
std::string pad(Runtime& runtime, std::string_view prefix, std::string_view body,
                const FormatSpec& spec, char default_align);

// format(value, spec)
std::string format_value(Runtime& runtime, const Value& value, std::string_view spec);

// The sign to print before a number, by the spec's rule.
std::string sign_text(bool negative, char rule);

inline uint64_t magnitude(int64_t value) {
  return value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
}

}  // namespace klotski::jinja
