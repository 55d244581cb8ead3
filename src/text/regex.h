#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "text/span.h"

namespace klotski {

// The dialect a pattern was written in. Both are translated to PCRE2's before compiling.
enum class RegexDialect {
  oniguruma,  // tokenizer.json: ^ and $ match at lines, (?m) lets . match a newline
  rust,       // tiktoken: $ is the end of the text only
};

// A pattern from a model file: hostile, so every search runs under limits on steps and memory.
class Regex {
 public:
  // `what` names the file and field in the error for a pattern that is not supported.
  Regex(std::string_view pattern, RegexDialect dialect, std::string_view what);
  ~Regex();
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;

 private:
  friend class RegexMatches;
  struct Compiled;
  std::unique_ptr<Compiled> compiled_;
};

// The matches in valid UTF-8 text, which must outlive this: left to right, without overlap. An
// empty match right after the previous match is passed over.
class RegexMatches {
 public:
  RegexMatches(const Regex& regex, std::string_view text);
  ~RegexMatches();
  RegexMatches(const RegexMatches&) = delete;
  RegexMatches& operator=(const RegexMatches&) = delete;

  bool next(Span* match);  // throws where the pattern exceeds its limits

 private:
  bool search();

  const Regex::Compiled& compiled_;
  std::optional<std::string> replaced_;  // see newer_unicode.h
  std::string_view text_;
  struct Buffers;
  std::unique_ptr<Buffers> buffers_;
  size_t from_ = 0;
  size_t last_end_ = std::string_view::npos;
};

// The pattern in PCRE2's rules (with UTF and UCP in force).
std::string translate_regex(std::string_view pattern, RegexDialect dialect, std::string_view what);

}  // namespace klotski
