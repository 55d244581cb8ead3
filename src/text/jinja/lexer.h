#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/value.h"

namespace klotski::jinja {

enum class TokenKind : uint8_t {
  data,
  variable_begin,
  variable_end,
  block_begin,
  block_end,
  name,
  string,
  number,
  op,
  end
};

struct Token {
  TokenKind kind;
  int line;
  std::string text;  // text of data, names, strings and operators
  Value number;
};

// A mistake in the template's source.
class SyntaxError : public std::runtime_error {
 public:
  SyntaxError(int line, const std::string& message) : std::runtime_error(message), line_(line) {}
  int line() const { return line_; }

 private:
  int line_;
};

// Splits a template with trim_blocks and lstrip_blocks on and without its last newline. Comments
// are dropped, raw blocks become data. The last token is of kind `end`.
std::vector<Token> tokenize(std::string_view source);

}  // namespace klotski::jinja
