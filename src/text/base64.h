#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace klotski {

// Standard alphabet with padding; nullopt where the text is anything else.
std::optional<std::string> decode_base64(std::string_view text);

}  // namespace klotski
