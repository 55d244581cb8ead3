#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace klotski {

inline constexpr char32_t kReplacementCharacter = 0xFFFD;
inline constexpr std::string_view kReplacementText = "\xEF\xBF\xBD";

struct Utf8Char {
  char32_t code = 0;
  uint32_t bytes = 1;
  bool valid = true;  // false: `bytes` is the maximal invalid sequence, `code` is U+FFFD
};

// The character that begins at text[at]; `at` must lie inside the text.
Utf8Char decode_utf8(std::string_view text, size_t at);

// Bytes of the character that begins with `lead`, in text known to be valid.
constexpr size_t utf8_bytes(char lead) {
  const auto byte = static_cast<unsigned char>(lead);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

constexpr bool is_utf8_continuation(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0) == 0x80;
}

// `code` must be a Unicode scalar value.
void append_utf8(std::string& out, char32_t code);

size_t count_utf8_chars(std::string_view valid_text);

// Length of the longest prefix that is pure ASCII.
size_t ascii_prefix(std::string_view text);

bool is_valid_utf8(std::string_view text);

// Appends `bytes`, each maximal invalid sequence as one U+FFFD, as Rust's from_utf8_lossy does.
void append_lossy_utf8(std::string& out, std::string_view bytes);

// Length of an unfinished character at the end of `bytes` (0 to 3): a prefix that more bytes could
// still turn into a valid character.
size_t unfinished_utf8_tail(std::string_view bytes);

}  // namespace klotski
