#include "text/jinja/format.h"

#include <array>
#include <charconv>
#include <cmath>

#include "text/jinja/loop.h"
#include "text/jinja/unicode.h"

namespace klotski::jinja {
namespace {

void append_escaped(std::string* out, char32_t c) {
  if (c <= 0xFF) {
    *out += fmt::format("\\x{:02x}", static_cast<uint32_t>(c));
  } else if (c <= 0xFFFF) {
    *out += fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
  } else {
    *out += fmt::format("\\U{:08x}", static_cast<uint32_t>(c));
  }
}

// ASCII that stands for itself in every kind of string literal; most text is made of runs of it.
bool is_plain(char c) { return c >= ' ' && c < 0x7F && c != '"' && c != '\'' && c != '\\'; }

std::string repr_string(std::string_view text) {
  const bool single = text.find('\'') != std::string_view::npos;
  const bool both = single && text.find('"') != std::string_view::npos;
  const char quote = single && !both ? '"' : '\'';
  std::string out(1, quote);
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    while (at < text.size() && is_plain(text[at])) ++at;
    out += text.substr(begin, at - begin);
    if (at > begin) continue;
    const char32_t c = next_code_point(text, &at);
    if (c == U'\\' || c == static_cast<char32_t>(quote)) {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == U'\n' || c == U'\r' || c == U'\t') {
      out += c == U'\n' ? "\\n" : c == U'\r' ? "\\r" : "\\t";
    } else if (is_printable(c)) {
      out += text.substr(begin, at - begin);
    } else {
      append_escaped(&out, c);
    }
  }
  return out + quote;
}

class ReprWriter {
 public:
  explicit ReprWriter(Runtime& runtime) : runtime_(runtime), out_(runtime) {}

  std::string take() { return out_.take(); }

  void write(const Value& value) {
    const DepthGuard guard(&depth_, kMaxValueDepth + 20);
    runtime_.budget().step();
    switch (value.kind()) {
      case Kind::string:
        return write_string(value);
      case Kind::list:
        return write_items("[", value.items(), "]");
      case Kind::tuple:
        return write_items("(", value.items(), value.items().size() == 1 ? ",)" : ")");
      case Kind::dict:
        return write_dict(value.as<DictObject>());
      case Kind::view:
        return write_view(value.as<ViewObject>());
      case Kind::name_space:
        out_.append("<Namespace ");
        write_dict(value.as<NamespaceObject>().attributes);
        return out_.append(">");
      default:
        return out_.append(scalar(value));
    }
  }

 private:
  static std::string scalar(const Value& value) {
    switch (value.kind()) {
      case Kind::undefined:
        return "Undefined";
      case Kind::none:
        return "None";
      case Kind::boolean:
        return value.integer() != 0 ? "True" : "False";
      case Kind::integer:
        return fmt::format("{}", value.integer());
      case Kind::real:
        return repr_real(value.number());
      case Kind::range: {
        const auto& range = value.as<RangeObject>();
        if (range.step == 1) return fmt::format("range({}, {})", range.start, range.stop);
        return fmt::format("range({}, {}, {})", range.start, range.stop, range.step);
      }
      case Kind::callable:
        return value.as<CallableObject>().describe();
      case Kind::loop:
        return value.mutable_as<LoopObject>().describe();
      default:
        return fmt::format("<{} object>", type_name(value));
    }
  }

  void write_string(const Value& value) {
    runtime_.budget().allocate(value.text().size());
    const bool markup = value.as<StringObject>().markup;
    out_.append((markup ? "Markup(" : "") + repr_string(value.text()) + (markup ? ")" : ""));
  }

  void write_items(std::string_view open, const std::vector<Value>& items, std::string_view close) {
    out_.append(open);
    bool first = true;
    for (const Value& item : items) {
      if (!first) out_.append(", ");
      first = false;
      write(item);
    }
    out_.append(close);
  }

  void write_dict(const DictObject& dict) {
    out_.append("{");
    bool first = true;
    for (const auto& [key, value] : dict.entries()) {
      if (!first) out_.append(", ");
      first = false;
      write(key);
      out_.append(": ");
      write(value);
    }
    out_.append("}");
  }

  void write_view(const ViewObject& view) {
    out_.append(view.part == ViewObject::Part::keys     ? "dict_keys("
                : view.part == ViewObject::Part::values ? "dict_values("
                                                        : "dict_items(");
    std::vector<Value> items;
    for (const auto& [key, value] : view.dict.as<DictObject>().entries()) {
      items.push_back(view.part == ViewObject::Part::keys     ? key
                      : view.part == ViewObject::Part::values ? value
                                                              : runtime_.tuple({key, value}));
    }
    write_items("[", items, "])");
  }

  Runtime& runtime_;
  TextBuilder out_;
  int depth_ = 0;
};

}  // namespace

std::string repr_real(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::array<char, 40> buffer{};
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                 std::chars_format::scientific)
                       .ptr;
  std::string text(buffer.data(), end);
  const std::string sign = text[0] == '-' ? "-" : "";
  text = text.substr(sign.size());
  const size_t mark = text.find('e');
  const int exponent = std::stoi(text.substr(mark + 1));
  std::string digits = text.substr(0, 1);
  if (mark > 1) digits += text.substr(2, mark - 2);
  if (exponent < -4 || exponent >= 16) {
    const std::string fraction = digits.size() > 1 ? fmt::format(".{}", digits.substr(1)) : "";
    return fmt::format("{}{}{}e{}{:02}", sign, digits[0], fraction, exponent < 0 ? '-' : '+',
                       std::abs(exponent));
  }
  if (exponent < 0) {
    return sign + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  }
  const auto whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() <= whole) return sign + digits + std::string(whole - digits.size(), '0') + ".0";
  return sign + digits.substr(0, whole) + "." + digits.substr(whole);
}

std::string repr(Runtime& runtime, const Value& value) {
  ReprWriter writer(runtime);
  writer.write(value);
  return writer.take();
}

std::string to_text(Runtime& runtime, const Value& value) {
  if (value.is_string()) {
    runtime.budget().allocate(value.text().size());
    return value.text();
  }
  if (value.is(Kind::undefined)) return "";
  return repr(runtime, value);
}

Value to_text_value(Runtime& runtime, const Value& value) {
  return value.is_string() ? value : Value::string(to_text(runtime, value));
}

}  // namespace klotski::jinja
