#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace klotski {

// PCRE2 10.42 knows Unicode 14; the libraries whose results count know Unicode 16. Where patterns
// are matched for their positions only, characters newer than 14 are replaced by older ones of
// equal category and number of bytes. nullopt: the text has none of them.
std::optional<std::string> replace_newer_characters(std::string_view text);

}  // namespace klotski
