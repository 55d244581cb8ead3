#pragma once

#include <optional>

namespace klotski {

// Hugging Face's library takes its character properties from several crates, some frozen at Unicode
// 8 to 12, some at 16 and later. These tables hold the code points on which they differ from
// utf8proc (Unicode 15), so that results are equal. A newer utf8proc changes nothing here.
enum class CharacterProperty { punctuation, numeric, mark, nonspacing_mark, other };

std::optional<bool> forced_property(CharacterProperty property, char32_t code);
std::optional<char32_t> forced_lowercase(char32_t code);
// Characters whose compatibility or canonical decomposition is newer than the frozen tables.
bool is_never_decomposed(char32_t code);

}  // namespace klotski
