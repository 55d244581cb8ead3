#include "text/jinja/lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "base/error.h"
#include "base/numbers.h"
#include "text/jinja/literals.h"
#include "text/jinja/unicode.h"
#include "text/utf8.h"

namespace klotski::jinja {
namespace {

// Every kind of line end becomes \n and one at the very end is dropped.
std::string normalize_newlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

constexpr std::array<std::string_view, 26> kOperators = {
    "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
    "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normalize_newlines(source)) {}

  std::vector<Token> run() {
    while (position_ < source_.size()) lex_text();
    push(TokenKind::end, "");
    return std::move(tokens_);
  }

 private:
  enum class Tag { none, block, variable, comment };

  [[noreturn]] void fail(const std::string& message) const { throw SyntaxError(line_, message); }

  std::string_view rest() const { return std::string_view(source_).substr(position_); }
  bool at(std::string_view text) const { return rest().substr(0, text.size()) == text; }

  void push(TokenKind kind, std::string_view text) {
    tokens_.push_back({kind, line_, std::string(text), Value()});
  }

  void push_data(std::string_view text) {
    if (!text.empty()) push(TokenKind::data, text);
  }

  void advance(size_t count) {
    const auto begin = source_.begin() + static_cast<std::ptrdiff_t>(position_);
    line_ += static_cast<int>(std::count(begin, begin + static_cast<std::ptrdiff_t>(count), '\n'));
    position_ += count;
    if (count > 0) line_starting_ = source_[position_ - 1] == '\n';
  }

  size_t skip_space(size_t position) const {
    while (position < source_.size()) {
      size_t after = position;
      if (!is_space(next_code_point(source_, &after))) break;
      position = after;
    }
    return position;
  }

  // Text up to the next tag, then the tag.
  void lex_text() {
    size_t begin = position_;
    Tag tag = Tag::none;
    for (; (begin = source_.find('{', begin)) != std::string::npos; ++begin) {
      const char next = begin + 1 < source_.size() ? source_[begin + 1] : '\0';
      tag = next == '%' ? Tag::block : next == '{' ? Tag::variable : Tag::none;
      if (next == '#') tag = Tag::comment;
      if (tag != Tag::none) break;
    }
    if (tag == Tag::none) {
      push_data(rest());
      advance(source_.size() - position_);
      return;
    }
    const char sign = begin + 2 < source_.size() ? source_[begin + 2] : '\0';
    push_data(trim_before_tag(begin, sign, tag == Tag::variable));
    advance(begin - position_);
    if (tag == Tag::block && lex_raw()) return;
    advance(sign == '-' || sign == '+' ? 3 : 2);
    if (tag == Tag::comment) return lex_comment();
    push(tag == Tag::block ? TokenKind::block_begin : TokenKind::variable_begin, "");
    lex_tag(tag == Tag::block);
  }

  // The text from the current position to `end` as far as the tag that begins there leaves it.
  std::string_view trim_before_tag(size_t end, char sign, bool variable) const {
    const std::string_view text = rest().substr(0, end - position_);
    if (sign == '-') return strip_space(text, false, true);
    if (sign == '+' || variable) return text;
    const size_t newline = text.rfind('\n');
    if (newline == std::string_view::npos && !line_starting_) return text;
    const size_t line_begin = newline == std::string_view::npos ? 0 : newline + 1;
    const bool blank = strip_space(text.substr(line_begin)).empty();
    return blank ? text.substr(0, line_begin) : text;
  }

  // The end of the word of a tag such as {%- raw -%}, or npos. `position` is behind the "{%".
  size_t match_word(size_t position, std::string_view word) const {
    if (position < source_.size() && (source_[position] == '-' || source_[position] == '+')) {
      ++position;
    }
    position = skip_space(position);
    if (source_.compare(position, word.size(), word) != 0) return std::string::npos;
    return skip_space(position + word.size());
  }

  // The end of the end of a tag at `position`, white space it eats included, or npos.
  size_t match_tag_end(size_t position, std::string_view end, bool plus_and_newline) const {
    const std::string_view text = std::string_view(source_).substr(position);
    if (text.substr(0, 1) == "-" && text.substr(1, 2) == end) return skip_space(position + 3);
    if (plus_and_newline && text.substr(0, 1) == "+" && text.substr(1, 2) == end) {
      return position + 3;
    }
    if (text.substr(0, 2) != end) return std::string::npos;
    const bool newline = plus_and_newline && text.substr(2, 1) == "\n";
    return position + (newline ? 3 : 2);
  }

  bool lex_raw() {
    const size_t word_end = match_word(position_ + 2, "raw");
    if (word_end == std::string::npos) return false;
    const size_t begin = match_tag_end(word_end, "%}", false);
    if (begin == std::string::npos) return false;
    // A bare "+%}" does not close the opening of a raw block, and neither does its newline go.
    advance(begin - position_);
    for (size_t i = position_; (i = source_.find("{%", i)) != std::string::npos; i += 2) {
      const size_t end_word = match_word(i + 2, "endraw");
      if (end_word == std::string::npos) continue;
      const size_t end = match_tag_end(end_word, "%}", true);
      if (end == std::string::npos) continue;
      push_data(trim_before_tag(i, source_[i + 2], false));
      advance(end - position_);
      return true;
    }
    fail("missing end of raw directive");
  }

  void lex_comment() {
    const size_t close = source_.find("#}", position_);
    if (close == std::string::npos) fail("missing end of comment tag");
    size_t end = close + 2;
    const char before = close > position_ ? source_[close - 1] : '\0';
    if (before == '-') {
      end = skip_space(end);
    } else if (before != '+' && end < source_.size() && source_[end] == '\n') {
      ++end;
    }
    advance(end - position_);
  }

  void lex_tag(bool block) {
    const std::string_view end = block ? "%}" : "}}";
    std::string open;  // the brackets that are to be closed
    while (true) {
      advance(skip_space(position_) - position_);
      if (position_ >= source_.size()) return;  // the parser reports the missing end
      if (open.empty()) {
        const size_t after = match_tag_end(position_, end, block);
        if (after != std::string::npos) {
          push(block ? TokenKind::block_end : TokenKind::variable_end, "");
          return advance(after - position_);
        }
      }
      lex_token(&open);
    }
  }

  void lex_token(std::string* open) {
    const char c = source_[position_];
    if (c >= '0' && c <= '9') return lex_number();
    if (c == '"' || c == '\'') return lex_string(c);
    size_t after = position_;
    if (is_word(next_code_point(source_, &after))) return lex_name();
    for (const std::string_view op : kOperators) {
      if (!at(op)) continue;
      balance(op, open);
      push(TokenKind::op, op);
      return advance(op.size());
    }
    fail(fmt::format("unexpected character {}", in_quotes(rest().substr(0, 1))));
  }

  void balance(std::string_view op, std::string* open) const {
    if (op == "(" || op == "[" || op == "{") *open += op == "(" ? ')' : op == "[" ? ']' : '}';
    if (op != ")" && op != "]" && op != "}") return;
    if (open->empty()) fail(fmt::format("unexpected '{}'", op));
    if (open->back() != op[0])
      fail(fmt::format("unexpected '{}', expected '{}'", op, open->back()));
    open->pop_back();
  }

  void lex_number() {
    const bool after_dot = position_ > 0 && source_[position_ - 1] == '.';
    NumberLiteral literal = read_number(rest(), !after_dot);
    if (!literal.error.empty()) fail(literal.error);
    push(TokenKind::number, rest().substr(0, literal.size));
    tokens_.back().number = literal.value;
    advance(literal.size);
  }

  void lex_name() {
    size_t end = position_;
    bool valid = true;
    while (end < source_.size()) {
      size_t after = end;
      const char32_t c = next_code_point(source_, &after);
      if (!is_word(c) && !is_identifier_part(c)) break;
      valid = valid && (end == position_ ? is_identifier_start(c) : is_identifier_part(c));
      end = after;
    }
    if (!valid) fail("invalid character in identifier");
    push(TokenKind::name, rest().substr(0, end - position_));
    advance(end - position_);
  }

  void lex_string(char quote) {
    size_t end = position_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) fail("a string is not closed");
    std::string error;
    const std::string text = unescape(rest().substr(1, end - position_ - 1), &error);
    if (!error.empty()) fail(error);
    push(TokenKind::string, text);
    advance(end + 1 - position_);
  }

  std::string source_;
  size_t position_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) {
  if (!is_valid_utf8(source)) throw SyntaxError(1, "the template is not valid UTF-8");
  return Lexer(source).run();
}

}  // namespace klotski::jinja
