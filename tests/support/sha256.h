#pragma once

#include <string>
#include <string_view>

namespace klotski {

// The SHA-256 of the bytes in lower-case hexadecimal.
std::string sha256_hex(std::string_view bytes);

}  // namespace klotski
