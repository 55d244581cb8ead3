#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "base/json.h"
#include "text/regex.h"

namespace klotski {

// The pattern of a Replace or Split: a fixed text or a regular expression.
class Pattern {
 public:
  explicit Pattern(Regex regex) : pattern_(std::move(regex)) {}
  explicit Pattern(std::string literal) : pattern_(std::move(literal)) {}

  // Calls `visit` for every match from left to right; empty text has none.
  void for_each_match(std::string_view text, const std::function<void(Span)>& visit) const;

  // A fixed text of one character: matches never cross a boundary between two parts of a text.
  bool is_single_character() const;

  // `text` with every match replaced by `content`, which is taken literally. Stops growing once it
  // is longer than max_bytes: such a result is only good for being refused.
  std::string replaced(std::string_view text, std::string_view content, size_t max_bytes) const;

 private:
  std::variant<Regex, std::string> pattern_;
};

// Reads {"String": ".."} or {"Regex": ".."} under "pattern".
Pattern parse_pattern(const JsonFields& fields, const std::string& what);

}  // namespace klotski
