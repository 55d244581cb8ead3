#include "text/pattern.h"

#include "text/utf8.h"

namespace klotski {

void Pattern::for_each_match(std::string_view text, const std::function<void(Span)>& visit) const {
  if (text.empty()) return;
  if (const auto* literal = std::get_if<std::string>(&pattern_)) {
    for (size_t at = text.find(*literal); at != std::string_view::npos;) {
      visit({at, at + literal->size()});
      at = text.find(*literal, at + literal->size());
    }
    return;
  }
  RegexMatches matches(std::get<Regex>(pattern_), text);
  Span match;
  while (matches.next(&match)) visit(match);
}

bool Pattern::is_single_character() const {
  const auto* literal = std::get_if<std::string>(&pattern_);
  return literal && literal->size() == utf8_bytes(literal->front());
}

std::string Pattern::replaced(std::string_view text, std::string_view content,
                              size_t max_bytes) const {
  std::string out;
  out.reserve(text.size());
  size_t copied = 0;
  for_each_match(text, [&](Span match) {
    if (out.size() > max_bytes) return;
    out.append(text.substr(copied, match.begin - copied)).append(content);
    copied = match.end;
  });
  out.append(text.substr(copied));
  return out;
}

Pattern parse_pattern(const JsonFields& fields, const std::string& what) {
  const auto pattern = fields.object("pattern");
  if (!pattern) fields.refuse("pattern", R"({"String": ".."} or {"Regex": ".."})");
  if (pattern->has("Regex")) {
    return Pattern(Regex(pattern->string("Regex"), RegexDialect::oniguruma, what));
  }
  std::string literal = pattern->string("String");
  if (literal.empty()) pattern->refuse("String", "a text that is not empty");
  return Pattern(std::move(literal));
}

}  // namespace klotski
