#include <algorithm>
#include <cmath>

#include "text/jinja/format.h"
#include "text/jinja/format_spec.h"
#include "text/jinja/unicode.h"

namespace klotski::jinja {
namespace {

// Walks through a %-format and takes the arguments one by one, or by key from a dict.
class PercentFormatter {
 public:
  PercentFormatter(Runtime& runtime, std::string_view format, const Value& arguments)
      : runtime_(runtime), format_(format), arguments_(arguments), out_(runtime) {}

  std::string run() {
    while (at_ < format_.size()) {
      const size_t percent = std::min(format_.find('%', at_), format_.size());
      out_.append(format_.substr(at_, percent - at_));
      at_ = percent;
      if (at_ < format_.size()) directive();
    }
    const bool by_key = arguments_.is(Kind::dict) || arguments_.is(Kind::list) ||
                        arguments_.is(Kind::undefined) || arguments_.is(Kind::range);
    const size_t count = arguments_.is(Kind::tuple) ? arguments_.items().size() : 1;
    if (!by_key && used_ < count) raise("not all arguments were used by a % format");
    return out_.take();
  }

 private:
  char peek() const {
    if (at_ >= format_.size()) raise("a % format ends in the middle of a directive");
    return format_[at_];
  }

  Value next_argument() {
    if (arguments_.is(Kind::tuple)) {
      if (used_ >= arguments_.items().size()) raise("not enough arguments for a % format");
      return arguments_.items()[used_++];
    }
    if (used_++ > 0) raise("not enough arguments for a % format");
    return arguments_;
  }

  // A width or precision: digits, or * for the next argument.
  int64_t count() {
    if (peek() == '*') {
      ++at_;
      return require_integer(next_argument(), "'*' in a % format");
    }
    int64_t value = 0;
    while (peek() >= '0' && peek() <= '9') {
      value = value * 10 + (format_[at_++] - '0');
      if (value > 100'000'000'000) raise("a % format has too large a number");
    }
    return value;
  }

  Value keyed_argument() {
    int open = 1;
    const size_t begin = ++at_;
    while (open > 0) {
      open += peek() == '(' ? 1 : peek() == ')' ? -1 : 0;
      ++at_;
    }
    if (!arguments_.is(Kind::dict)) raise("a % format with a key needs a mapping");
    const std::string_view key = format_.substr(begin, at_ - begin - 1);
    const Value* found = arguments_.as<DictObject>().find(key);
    if (found == nullptr) raise("a % format names a key that is absent");
    return *found;
  }

  void directive() {
    ++at_;
    FormatSpec spec;
    Value argument;
    if (peek() == '(') argument = keyed_argument();
    for (; std::string_view("-+ #0").find(peek()) != std::string_view::npos; ++at_) flag(&spec);
    spec.width = count();
    if (spec.width == INT64_MIN) raise("a % format has too large a number");
    if (spec.width < 0) {
      spec.align = '<';
      spec.width = -spec.width;
    }
    if (peek() == '.') {
      ++at_;
      spec.precision = std::max<int64_t>(0, count());
    }
    while (peek() == 'l' || peek() == 'h' || peek() == 'L') ++at_;
    spec.type = peek();
    ++at_;
    if (spec.type == '%') return out_.append("%");
    if (argument.is(Kind::missing)) argument = next_argument();
    out_.append(convert(argument, spec));
  }

  void flag(FormatSpec* spec) const {
    const char c = format_[at_];
    if (c == '-') spec->align = '<';
    if (c == '+' || (c == ' ' && spec->sign != '+')) spec->sign = c;
    if (c == '#') spec->alternate = true;
    if (c == '0') spec->zero = true;
  }

  std::string convert(const Value& value, FormatSpec spec) {
    switch (spec.type) {
      case 's':
        return text(to_text(runtime_, value), spec);
      case 'r':
      case 'a':
        return text(repr(runtime_, value), spec);
      case 'c':
        return text(character(value), spec);
      case 'd':
      case 'i':
      case 'u':
      case 'o':
      case 'x':
      case 'X':
        return integer(value, spec);
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G':
        return real(value, spec);
      default:
        raise("a % format has an unknown directive");
    }
  }

  std::string text(const std::string& body, const FormatSpec& spec) {
    const size_t end = spec.precision < 0 ? body.size() : byte_offset(body, spec.precision);
    return pad(runtime_, "", std::string_view(body).substr(0, end), spec, '>');
  }

  static std::string character(const Value& value) {
    if (value.is_string() && length_of(value) == 1) return value.text();
    const int64_t code = require_integer(value, "%c");
    if (code < 0 || code > 0x10FFFF) raise("%c takes a character's number");
    std::string text;
    append_code_point(&text, static_cast<char32_t>(code));
    return text;
  }

  std::string number(bool negative, std::string prefix, const std::string& digits,
                     FormatSpec spec) {
    if (spec.zero && spec.align == 0) {
      spec.align = '=';
      spec.fill.assign(1, '0');
    }
    return pad(runtime_, sign_text(negative, spec.sign) + prefix, digits, spec, '>');
  }

  std::string integer(const Value& value, FormatSpec spec) {
    const bool decimal = spec.type == 'd' || spec.type == 'i' || spec.type == 'u';
    if (value.is(Kind::undefined)) raise_undefined(value);
    if (!value.is_integral() && !(decimal && value.is(Kind::real))) {
      raise("%{} needs a number, found {}", spec.type, type_name(value));
    }
    const double real = value.number();
    if (value.is(Kind::real) && !(std::fabs(real) < 9e18)) raise("%d of too large a number");
    const int64_t whole = value.is(Kind::real) ? static_cast<int64_t>(real) : value.integer();
    std::string digits = integer_digits(magnitude(whole), spec);
    if (spec.precision > static_cast<int64_t>(digits.size())) {
      TextBuilder zeros(runtime_);
      zeros.append_repeated("0", spec.precision - static_cast<int64_t>(digits.size()));
      digits = zeros.take() + digits;
    }
    const bool prefixed = spec.alternate && !decimal;
    return number(whole < 0, prefixed ? std::string("0") + spec.type : "", digits, spec);
  }

  std::string real(const Value& value, const FormatSpec& spec) {
    if (value.is(Kind::undefined)) raise_undefined(value);
    if (!value.is_number()) raise("%{} needs a number, found {}", spec.type, type_name(value));
    const double x = value.number();
    return number(std::signbit(x) && !std::isnan(x), "", real_digits(std::fabs(x), spec), spec);
  }

  Runtime& runtime_;
  std::string_view format_;
  const Value& arguments_;
  TextBuilder out_;
  size_t at_ = 0;
  size_t used_ = 0;
};

}  // namespace

std::string format_percent(Runtime& runtime, std::string_view format, const Value& arguments) {
  return PercentFormatter(runtime, format, arguments).run();
}

std::string format_time(Runtime& runtime, std::string_view format, const std::tm& time) {
  // One directive at a time and known letters only: the C library has directives with widths that
  // could ask for a gigabyte of blanks.
  static constexpr std::string_view kLetters = "aAbBcCdDeFgGhHIjklmMnpPrRsStTuUVwWxXyYzZ%";
  TextBuilder out(runtime);
  for (size_t at = 0; at < format.size();) {
    size_t end = at + 1;
    if (format[at] == '%' && end < format.size()) {
      if (std::string_view("-_0^#EO").find(format[end]) != std::string_view::npos) ++end;
      const char letter = end < format.size() ? format[end] : '\0';
      end = std::min(end + 1, format.size());
      char buffer[128];
      const std::string directive(format.substr(at, end - at));
      if (letter == 'f') {
        out.append("000000");
      } else if (letter != '\0' && kLetters.find(letter) != std::string_view::npos) {
        out.append({buffer, std::strftime(buffer, sizeof(buffer), directive.c_str(), &time)});
      } else {
        out.append(directive);
      }
    } else {
      out.append(format.substr(at, 1));
    }
    at = end;
  }
  return out.take();
}

}  // namespace klotski::jinja
