#include "text/jinja/format_spec.h"

#include <cmath>
#include <cstdio>

#include "text/jinja/format.h"
#include "text/jinja/unicode.h"

namespace klotski::jinja {
namespace {

// More digits than a double can have; a template that wants more is up to no good.
constexpr int64_t kMaxPrecision = 1000;

std::string group_digits(std::string digits, char separator) {
  size_t end = digits.find_first_not_of("0123456789");
  if (end == std::string::npos) end = digits.size();
  for (size_t at = end; at > 3; at -= 3) digits.insert(at - 3, 1, separator);
  return digits;
}

bool is_align(char32_t c) { return c == U'<' || c == U'>' || c == U'^' || c == U'='; }

int64_t read_count(std::string_view spec, size_t* at) {
  int64_t value = 0;
  while (*at < spec.size() && spec[*at] >= '0' && spec[*at] <= '9') {
    if (value > 100'000'000'000) raise("a format has too large a number");
    value = value * 10 + (spec[(*at)++] - '0');
  }
  return value;
}

// True if the fill was given.
bool parse_fill_and_align(std::string_view text, size_t* at, FormatSpec* spec) {
  size_t after_first = 0;
  if (!text.empty()) next_code_point(text, &after_first);
  if (after_first < text.size() && after_first > 0 &&
      is_align(static_cast<unsigned char>(text[after_first]))) {
    spec->fill = text.substr(0, after_first);
    spec->align = text[after_first];
    *at = after_first + 1;
    return true;
  }
  if (!text.empty() && is_align(static_cast<unsigned char>(text[0]))) {
    spec->align = text[0];
    *at = 1;
  }
  return false;
}

FormatSpec parse_spec(std::string_view text) {
  FormatSpec spec;
  size_t at = 0;
  const bool fill_given = parse_fill_and_align(text, &at, &spec);
  const auto take = [&](std::string_view any) {
    if (at < text.size() && any.find(text[at]) != std::string_view::npos) return text[at++];
    return '\0';
  };
  if (const char sign = take("+- ")) spec.sign = sign;
  spec.alternate = take("#") != 0;
  if (take("0") != 0) {
    spec.zero = true;
    if (!fill_given) spec.fill.assign(1, '0');
  }
  spec.width = read_count(text, &at);
  if (const char grouping = take(",_")) spec.grouping = grouping;
  if (take(".") != 0) {
    const size_t before = at;
    spec.precision = read_count(text, &at);
    if (at == before) raise("a format lacks its precision");
  }
  if (at < text.size()) spec.type = text[at++];
  if (at != text.size()) raise("a format specifier is invalid");
  return spec;
}

std::string format_text(Runtime& runtime, const std::string& text, const FormatSpec& spec) {
  if ((spec.type != 0 && spec.type != 's') || spec.align == '=' || spec.sign != '-' ||
      spec.grouping != 0) {
    raise("a format specifier is invalid for a string");
  }
  const size_t end = spec.precision < 0 ? text.size() : byte_offset(text, spec.precision);
  return pad(runtime, "", std::string_view(text).substr(0, end), spec, '<');
}

std::string format_real(Runtime& runtime, double value, FormatSpec spec) {
  if (spec.type != 0 && std::string_view("eEfFgG%n").find(spec.type) == std::string_view::npos) {
    raise("a format specifier is invalid for a float");
  }
  std::string digits;
  if (spec.type == 0 && spec.precision < 0) {
    digits = repr_real(std::fabs(value));
  } else {
    if (spec.type == 0 || spec.type == 'n') spec.type = 'g';
    digits = real_digits(std::fabs(value), spec);
  }
  if (spec.grouping != 0) digits = group_digits(digits, spec.grouping);
  return pad(runtime, sign_text(std::signbit(value), spec.sign), digits, spec,
             spec.zero ? '=' : '>');
}

std::string format_integer(Runtime& runtime, int64_t value, FormatSpec spec) {
  if (spec.type == 'c') {
    std::string text;
    if (value < 0 || value > 0x10FFFF) raise("%c takes a character's number");
    append_code_point(&text, static_cast<char32_t>(value));
    return pad(runtime, "", text, spec, '<');
  }
  if (spec.type == 0 || spec.type == 'n') spec.type = 'd';
  if (std::string_view("doxXb").find(spec.type) == std::string_view::npos) {
    return format_real(runtime, static_cast<double>(value), spec);
  }
  if (spec.precision >= 0) raise("a format of an integer has no precision");
  std::string digits = integer_digits(magnitude(value), spec);
  if (spec.grouping != 0) digits = group_digits(digits, spec.grouping);
  std::string prefix = sign_text(value < 0, spec.sign);
  if (spec.alternate && spec.type != 'd') prefix += std::string("0") + spec.type;
  return pad(runtime, prefix, digits, spec, spec.zero ? '=' : '>');
}

}  // namespace

std::string sign_text(bool negative, char rule) {
  if (negative) return "-";
  return rule == '-' ? "" : std::string(1, rule);
}

std::string integer_digits(uint64_t magnitude, const FormatSpec& spec) {
  switch (spec.type) {
    case 'o':
      return fmt::format("{:o}", magnitude);
    case 'x':
      return fmt::format("{:x}", magnitude);
    case 'X':
      return fmt::format("{:X}", magnitude);
    case 'b':
      return fmt::format("{:b}", magnitude);
    default:
      return fmt::format("{}", magnitude);
  }
}

std::string real_digits(double magnitude, const FormatSpec& spec) {
  if (spec.precision > kMaxPrecision) raise("a format has too large a precision");
  if (std::isnan(magnitude) || std::isinf(magnitude)) {
    const bool upper = spec.type == 'E' || spec.type == 'F' || spec.type == 'G';
    const std::string text = std::isnan(magnitude) ? (upper ? "NAN" : "nan")
                             : upper               ? "INF"
                                                   : "inf";
    return spec.type == '%' ? text + "%" : text;
  }
  const int precision = spec.precision < 0 ? 6 : static_cast<int>(spec.precision);
  const bool percent = spec.type == '%';
  const std::string pattern =
      std::string("%") + (spec.alternate ? "#" : "") + ".*" + (percent ? 'f' : spec.type);
  const double value = percent ? magnitude * 100 : magnitude;
  const int size = std::snprintf(nullptr, 0, pattern.c_str(), precision, value);
  std::string text(static_cast<size_t>(size) + 1, '\0');
  std::snprintf(text.data(), text.size(), pattern.c_str(), precision, value);
  text.pop_back();
  return percent ? text + "%" : text;
}

std::string pad(Runtime& runtime, std::string_view prefix, std::string_view body,
                const FormatSpec& spec, char default_align) {
  TextBuilder out(runtime);
  const int64_t missing = spec.width - count_code_points(prefix) - count_code_points(body);
  const char align = spec.align == 0 ? default_align : spec.align;
  const int64_t left = missing <= 0 ? 0 : align == '>' ? missing : align == '^' ? missing / 2 : 0;
  const int64_t middle = align == '=' ? missing : 0;
  const int64_t right = missing - left - middle;
  out.append_repeated(spec.fill, left);
  out.append(prefix);
  out.append_repeated(spec.fill, middle);
  out.append(body);
  out.append_repeated(spec.fill, right);
  return out.take();
}

std::string format_value(Runtime& runtime, const Value& value, std::string_view spec) {
  if (spec.empty()) return to_text(runtime, value);
  if (value.is(Kind::integer) || value.is(Kind::boolean)) {
    return format_integer(runtime, value.integer(), parse_spec(spec));
  }
  if (value.is(Kind::real)) return format_real(runtime, value.number(), parse_spec(spec));
  if (value.is_string()) return format_text(runtime, value.text(), parse_spec(spec));
  raise("a value of type {} takes no format specifier", type_name(value));
}

}  // namespace klotski::jinja
