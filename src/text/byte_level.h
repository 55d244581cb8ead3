#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace klotski {

// GPT-2's printable spelling of bytes: each byte is one character, so that a vocabulary of
// arbitrary bytes can be written as text. Printable Latin-1 stands for itself, the rest is U+0100
// and up.
void append_byte_level(std::string& out, std::string_view bytes);
std::string to_byte_level(std::string_view bytes);

// The bytes that `text` spells; nullopt where some character spells no byte.
std::optional<std::string> from_byte_level(std::string_view text);

// How GPT-2 cuts text into words before its bytes are spelled.
inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

}  // namespace klotski
