#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "text/jinja/filters.h"
#include "text/jinja/format.h"
#include "text/jinja/operators.h"
#include "text/jinja/unicode.h"

namespace klotski::jinja {
namespace {

using Bound = BoundArguments;

[[noreturn]] void raise_too_large() { raise("an integer does not fit 64 bits"); }

// ASCII only, unlike the functions of <cctype>, which depend on the locale and are undefined for
// negative chars.
bool is_ascii_digit(char c) { return c >= '0' && c <= '9'; }
bool is_ascii_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_ascii_alphanumeric(char c) { return is_ascii_digit(c) || is_ascii_letter(c); }

// Digits with single underscores between them removed; false where they stand elsewhere.
bool drop_underscores(std::string* text) {
  std::string out;
  for (size_t i = 0; i < text->size(); ++i) {
    const char c = (*text)[i];
    if (c != '_') {
      out += c;
    } else if (i == 0 || i + 1 == text->size() || !is_ascii_alphanumeric((*text)[i - 1]) ||
               !is_ascii_alphanumeric((*text)[i + 1])) {
      return false;
    }
  }
  *text = out;
  return true;
}

// float(text) of Python, or nothing.
std::optional<double> read_real(std::string_view source) {
  std::string text(strip_space(source));
  const size_t sign = !text.empty() && (text[0] == '-' || text[0] == '+') ? 1 : 0;
  if (!drop_underscores(&text) || text.size() == sign) return std::nullopt;
  const std::string body = to_lower(text.substr(sign));
  if (body != "inf" && body != "infinity" && body != "nan" &&
      body.find_first_not_of("0123456789.e+-") != std::string::npos) {
    return std::nullopt;
  }
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  return end == text.c_str() + text.size() ? std::optional(value) : std::nullopt;
}

// int(text, base) of Python, or nothing.
std::optional<int64_t> read_integer(std::string_view source, int64_t base) {
  std::string text(strip_space(source));
  const bool negative = !text.empty() && text[0] == '-';
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) text.erase(0, 1);
  if (text.size() > 2 && text[0] == '0') {
    const char kind = static_cast<char>(text[1] | 0x20);
    const int64_t named = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : -1;
    if (named > 0 && (base == named || base == 0)) {
      text.erase(0, text[2] == '_' ? 3 : 2);
      base = named;
    }
  }
  if (base == 0) base = 10;
  if (base < 2 || base > 36 || text.empty() || !drop_underscores(&text)) return std::nullopt;
  int64_t value = 0;
  bool overflow = false;
  for (const char c : text) {
    const int digit = is_ascii_digit(c) ? c - '0' : is_ascii_letter(c) ? (c | 0x20) - 'a' + 10 : 99;
    if (digit >= base) return std::nullopt;
    overflow = overflow || __builtin_mul_overflow(value, base, &value) ||
               __builtin_sub_overflow(value, digit, &value);
  }
  if (overflow || (!negative && value == INT64_MIN)) raise_too_large();
  return negative ? value : -value;
}

int64_t truncate_real(double value) {
  if (!(std::fabs(value) < 9.2e18)) raise_too_large();
  return static_cast<int64_t>(value);
}

Value filter_int(Runtime&, const Value& input, const Bound& args) {
  const Value fallback = args.has(0) ? args[0] : Value::integer(0);
  if (input.is(Kind::undefined)) raise_undefined(input);
  if (input.is_integral()) return Value::integer(input.integer());
  if (input.is(Kind::real)) {
    return std::isnan(input.number()) ? fallback : Value::integer(truncate_real(input.number()));
  }
  if (!input.is_string()) return fallback;
  if (const auto value = read_integer(input.text(), args.integer(1, 10))) {
    return Value::integer(*value);
  }
  const auto real = read_real(input.text());
  if (!real || std::isnan(*real) || std::isinf(*real)) return fallback;
  return Value::integer(truncate_real(*real));
}

Value filter_float(Runtime&, const Value& input, const Bound& args) {
  if (input.is(Kind::undefined)) raise_undefined(input);
  if (input.is_number()) return Value::real(input.number());
  const auto value = input.is_string() ? read_real(input.text()) : std::nullopt;
  if (value) return Value::real(*value);
  return args.has(0) ? args[0] : Value::real(0);
}

Value filter_abs(Runtime&, const Value& input, const Bound&) {
  if (input.is(Kind::undefined)) raise_undefined(input);
  if (!input.is_number()) raise("abs needs a number, found {}", type_name(input));
  if (input.is(Kind::real)) return Value::real(std::fabs(input.number()));
  return input.integer() < 0 ? negate(input) : Value::integer(input.integer());
}

// Rounds half to even on the exact decimal value, as Python and printf do.
double round_decimal(double value, int64_t precision) {
  if (!std::isfinite(value) || precision > 400) return value;
  // No double is as large as half of 10**309, which is infinite as a double.
  if (precision < -308) return std::copysign(0.0, value);
  if (precision >= 0) {
    std::array<char, 800> buffer{};
    std::snprintf(buffer.data(), buffer.size(), "%.*f", static_cast<int>(precision), value);
    return std::strtod(buffer.data(), nullptr);
  }
  const double scale = std::pow(10.0, static_cast<double>(-precision));
  return std::nearbyint(value / scale) * scale;
}

// Half to even. On the magnitude, where nothing can overflow: 10**19 and twice 2**63 - 1 fit.
Value round_integer(int64_t value, int64_t precision) {
  constexpr int64_t kMostDigits = 19;  // digits of 2**63
  if (precision >= 0) return Value::integer(value);
  if (precision < -kMostDigits) return Value::integer(0);
  uint64_t scale = 1;
  for (int64_t i = 0; i > precision; --i) scale *= 10;
  const bool negative = value < 0;
  const uint64_t size = negative ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  const uint64_t rest = size % scale;
  uint64_t rounded = size - rest;
  const uint64_t to_next = scale - rest;
  if (rest > to_next || (rest == to_next && (rounded / scale) % 2 != 0)) rounded += scale;
  if (rounded > static_cast<uint64_t>(INT64_MAX)) {
    if (!negative || rounded > uint64_t{1} << 63) raise_too_large();
    return Value::integer(INT64_MIN);
  }
  return Value::integer(negative ? -static_cast<int64_t>(rounded) : static_cast<int64_t>(rounded));
}

Value filter_round(Runtime&, const Value& input, const Bound& args) {
  const int64_t precision = args.integer(0, 0);
  const std::string method = args.text(1, "common");
  if (method != "common" && method != "ceil" && method != "floor") {
    raise("round() knows the methods common, ceil and floor");
  }
  if (input.is(Kind::undefined)) raise_undefined(input);
  if (!input.is_number()) raise("round() needs a number, found {}", type_name(input));
  if (method == "common") {
    return input.is_integral() ? round_integer(input.integer(), precision)
                               : Value::real(round_decimal(input.number(), precision));
  }
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double scaled = input.number() * scale;
  if (!std::isfinite(scaled) || scale == 0) raise("round() of a number that is too large");
  return Value::real((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

Value filter_file_size(Runtime& rt, const Value& input, const Bound& args) {
  static constexpr std::array<std::string_view, 8> kDecimal = {"kB", "MB", "GB", "TB",
                                                               "PB", "EB", "ZB", "YB"};
  static constexpr std::array<std::string_view, 8> kBinary = {"KiB", "MiB", "GiB", "TiB",
                                                              "PiB", "EiB", "ZiB", "YiB"};
  if (input.is(Kind::undefined)) raise_undefined(input);
  const auto parsed = input.is_number()   ? std::optional(input.number())
                      : input.is_string() ? read_real(input.text())
                                          : std::nullopt;
  if (!parsed) raise("filesizeformat needs a number");
  const bool binary = args.boolean(0, false);
  const double base = binary ? 1024 : 1000;
  if (*parsed == 1) return rt.text("1 Byte");
  if (*parsed < base) {
    if (!(std::fabs(*parsed) < 9e18)) raise("filesizeformat needs a finite number");
    return rt.text(fmt::format("{} Bytes", static_cast<int64_t>(*parsed)));
  }
  double unit = base;
  size_t index = 0;
  for (; index + 1 < kDecimal.size() && !(*parsed < unit * base); ++index) unit *= base;
  return rt.text(
      fmt::format("{:.1f} {}", *parsed / unit, binary ? kBinary[index] : kDecimal[index]));
}

constexpr FilterEntry kNumberFilters[] = {
    {"abs", "", filter_abs},
    {"filesizeformat", "binary", filter_file_size},
    {"float", "default", filter_float},
    {"int", "default base", filter_int},
    {"round", "precision method", filter_round},
};

}  // namespace

std::span<const FilterEntry> number_filters() { return kNumberFilters; }

}  // namespace klotski::jinja
