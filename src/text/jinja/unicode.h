#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace klotski::jinja {

// Text is valid UTF-8: templates are checked, variables are repaired when they come in. Positions
// that Python counts are code points.

// The code point at byte `*position`, which moves behind it.
char32_t next_code_point(std::string_view text, size_t* position);
// A surrogate, which UTF-8 cannot hold, becomes U+FFFD.
void append_code_point(std::string* out, char32_t code_point);
int64_t count_code_points(std::string_view text);
// The byte at which code point `index` begins; the size of the text if there are fewer.
size_t byte_offset(std::string_view text, int64_t index);

// Answers of Python's str methods of these names for one character.
bool is_space(char32_t c);
bool is_printable(char32_t c);
bool is_alpha(char32_t c);
bool is_decimal(char32_t c);
bool is_digit(char32_t c);
bool is_numeric(char32_t c);
bool is_upper(char32_t c);
bool is_lower(char32_t c);
bool is_title(char32_t c);
bool is_identifier_start(char32_t c);
bool is_identifier_part(char32_t c);
// Whether a regular expression's \w matches the character.
inline bool is_word(char32_t c) { return c == U'_' || is_alpha(c) || is_numeric(c); }

std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);
std::string to_title(std::string_view text);        // str.title()
std::string to_capitalized(std::string_view text);  // str.capitalize()

// The text without the white space at both ends, at the left, at the right.
std::string_view strip_space(std::string_view text, bool left = true, bool right = true);

}  // namespace klotski::jinja
