#include "text/jinja/literals.h"

#include <charconv>
#include <functional>

#include "text/jinja/unicode.h"

namespace klotski::jinja {
namespace {

bool is_decimal_digit(char c) { return c >= '0' && c <= '9'; }

// Digits with single underscores between them; returns the end.
size_t digits_end(std::string_view text, size_t at, const std::function<bool(char)>& is_digit) {
  while (at < text.size()) {
    if (is_digit(text[at])) {
      ++at;
    } else if (text[at] == '_' && at + 1 < text.size() && is_digit(text[at + 1])) {
      at += 2;
    } else {
      break;
    }
  }
  return at;
}

std::string without_underscores(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c != '_') out += c;
  }
  return out;
}

// The end of a float that begins at 0, or 0 if it is none.
size_t real_end(std::string_view text) {
  const size_t whole = digits_end(text, 0, is_decimal_digit);
  size_t end = whole;
  if (end + 1 < text.size() && text[end] == '.' && is_decimal_digit(text[end + 1])) {
    end = digits_end(text, end + 1, is_decimal_digit);
  }
  if (end < text.size() && (text[end] == 'e' || text[end] == 'E')) {
    size_t exponent = end + 1;
    if (exponent < text.size() && (text[exponent] == '+' || text[exponent] == '-')) ++exponent;
    if (exponent < text.size() && is_decimal_digit(text[exponent])) {
      return digits_end(text, exponent, is_decimal_digit);
    }
  }
  return end == whole ? 0 : end;
}

int digit_value(char c) {
  if (is_decimal_digit(c)) return c - '0';
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : 99;
}

// The base a prefix such as 0x names, or 0.
int prefix_base(std::string_view text) {
  if (text.size() < 3 || text[0] != '0') return 0;
  const char kind = static_cast<char>(text[1] | 0x20);
  const int base = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 0;
  const char first = text[2] == '_' && text.size() > 3 ? text[3] : text[2];
  return base != 0 && digit_value(first) < base ? base : 0;
}

NumberLiteral finish_integer(std::string_view text, size_t begin, size_t end, int base) {
  NumberLiteral result;
  result.size = end;
  const std::string digits = without_underscores(text.substr(begin, end - begin));
  int64_t value = 0;
  const auto [stop, code] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  if (code != std::errc() || stop != digits.data() + digits.size()) {
    result.error = "an integer does not fit 64 bits";
  }
  result.value = Value::integer(value);
  return result;
}

struct EscapeReader {
  std::string_view text;
  size_t at;
  std::string out;
  std::string error;

  void read_hex(int digits) {
    char32_t code = 0;
    for (int i = 0; i < digits; ++i, ++at) {
      const int digit = at < text.size() ? digit_value(text[at]) : 99;
      if (digit > 15) return void(error = "a string has a truncated escape");
      code = code * 16 + static_cast<char32_t>(digit);
    }
    if (code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) {
      return void(error = "a string has an escape that is no Unicode character");
    }
    append_code_point(&out, code);
  }

  void read_octal() {
    char32_t code = 0;
    for (int i = 0; i < 3 && at < text.size() && text[at] >= '0' && text[at] <= '7'; ++i, ++at) {
      code = code * 8 + static_cast<char32_t>(text[at] - '0');
    }
    append_code_point(&out, code);
  }

  // `at` is behind the backslash.
  void read() {
    static constexpr std::string_view kNames = "abfnrtv\\'\"\n";
    static constexpr std::string_view kMeanings = "\a\b\f\n\r\t\v\\'\"";
    const char c = text[at];
    if (c >= '0' && c <= '7') return read_octal();
    ++at;
    if (c == 'x') return read_hex(2);
    if (c == 'u') return read_hex(4);
    if (c == 'U') return read_hex(8);
    if (c == 'N') return void(error = "characters by name are not supported in strings");
    const size_t index = kNames.find(c);
    if (index == std::string_view::npos) {
      out += '\\';
      out += c;
    } else if (index < kMeanings.size()) {
      out += kMeanings[index];
    }
  }
};

}  // namespace

NumberLiteral read_number(std::string_view text, bool allow_real) {
  if (const size_t end = allow_real ? real_end(text) : 0; end != 0) {
    NumberLiteral result;
    result.size = end;
    const std::string digits = without_underscores(text.substr(0, end));
    result.value = Value::real(std::strtod(digits.c_str(), nullptr));
    return result;
  }
  if (const int base = prefix_base(text); base != 0) {
    const size_t end = digits_end(text, 2, [base](char c) { return digit_value(c) < base; });
    return finish_integer(text, 2, end, base);
  }
  // A zero is followed by zeros only: "012" is 0 and then 12, which no expression allows.
  const size_t end = text[0] == '0' ? digits_end(text, 0, [](char c) { return c == '0'; })
                                    : digits_end(text, 0, is_decimal_digit);
  return finish_integer(text, 0, end, 10);
}

std::string unescape(std::string_view text, std::string* error) {
  EscapeReader reader{text, 0, "", ""};
  while (reader.at < text.size() && reader.error.empty()) {
    const char c = text[reader.at++];
    if (c == '\\' && reader.at < text.size()) {
      reader.read();
    } else {
      reader.out += c;
    }
  }
  *error = reader.error;
  return reader.out;
}

}  // namespace klotski::jinja
