#pragma once

#include <string>
#include <string_view>

#include "text/regex.h"

namespace klotski {

// A set of characters as the inside of a PCRE2 class: `members` between brackets, or every other
// character.
struct CharacterSet {
  std::string members;
  bool complement = false;
};

// The characters of a shorthand (s, S, w, W, h, H); empty members where the letter is no shorthand
// that differs from PCRE2's.
CharacterSet shorthand_set(char letter, RegexDialect dialect);

// A property by any of its usual names: category, script, binary property or POSIX class.
CharacterSet property_set(std::string_view name, RegexDialect dialect);

// Reads \p{..}, \P{..}, \pL at `at` (after the backslash) and moves it past.
CharacterSet read_property(std::string_view pattern, size_t* at, RegexDialect dialect,
                           std::string_view what);

// Reads a bracketed class whose '[' is at `at` and moves past its ']'. Nested classes and &&
// become alternations and lookaheads, which PCRE2 10.42 needs.
std::string translate_class(std::string_view pattern, size_t* at, RegexDialect dialect,
                            std::string_view what);

// Reads an escape after the backslash that names one character in a way PCRE2 does not know (\v,
// \uHHHH, \u{H..}); empty where it is no such escape.
std::string translate_character_escape(std::string_view pattern, size_t* at);

}  // namespace klotski
