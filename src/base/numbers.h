#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace klotski {

// Strict readings of whole strings: decimal only, no sign tricks, no spaces, no trailing text.
std::optional<int64_t> parse_int(std::string_view text);
std::optional<uint64_t> parse_uint(std::string_view text);
std::optional<double> parse_double(std::string_view text);  // finite values only

}  // namespace klotski
