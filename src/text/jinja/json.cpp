#include <algorithm>
#include <cmath>

#include "text/jinja/format.h"
#include "text/jinja/unicode.h"

namespace klotski::jinja {
namespace {

// ASCII that needs no escape; most text is made of runs of it.
bool stands_for_itself(char c) { return c >= ' ' && c < 0x7F && c != '"' && c != '\\'; }

class JsonWriter {
 public:
  JsonWriter(Runtime& runtime, const JsonStyle& style)
      : runtime_(runtime), style_(style), out_(runtime) {}

  std::string take() { return out_.take(); }

  void write(const Value& value) {
    runtime_.budget().step();
    switch (value.kind()) {
      case Kind::none:
      case Kind::boolean:
      case Kind::integer:
      case Kind::real:
        return out_.append(scalar(value));
      case Kind::string:
        return write_string(value.text());
      case Kind::list:
      case Kind::tuple:
        return write_list(value.items());
      case Kind::dict:
        return write_dict(value.as<DictObject>());
      default:
        raise("a value of type {} cannot be written as JSON", type_name(value));
    }
  }

 private:
  static std::string scalar(const Value& value) {
    if (value.is(Kind::none)) return "null";
    if (value.is(Kind::boolean)) return value.integer() != 0 ? "true" : "false";
    if (value.is(Kind::integer)) return fmt::format("{}", value.integer());
    if (std::isnan(value.number())) return "NaN";
    if (std::isinf(value.number())) return value.number() < 0 ? "-Infinity" : "Infinity";
    return repr_real(value.number());
  }

  void append_escape(std::string* out, char32_t c) const {
    static constexpr std::string_view kCharacters = "\"\\\n\r\t\f\b";
    static constexpr std::string_view kNames = "\"\\nrtfb";
    const size_t index = c < 0x80 ? kCharacters.find(static_cast<char>(c)) : std::string_view::npos;
    if (index != std::string_view::npos) {
      *out += '\\';
      *out += kNames[index];
    } else if (c > 0xFFFF) {
      const auto offset = static_cast<uint32_t>(c) - 0x10000;
      *out += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (offset >> 10), 0xDC00 + (offset & 0x3FF));
    } else {
      *out += fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
    }
  }

  void write_string(std::string_view text) {
    runtime_.budget().allocate(text.size());
    std::string out = "\"";
    for (size_t at = 0; at < text.size();) {
      const size_t begin = at;
      while (at < text.size() && stands_for_itself(text[at])) ++at;
      out += text.substr(begin, at - begin);
      if (at > begin) continue;
      const char32_t c = next_code_point(text, &at);
      if (c < 0x20 || c == U'"' || c == U'\\' || (style_.ascii && c > 0x7E)) {
        append_escape(&out, c);
      } else {
        out += text.substr(begin, at - begin);
      }
    }
    out += '"';
    out_.append(out);
  }

  void write_break() {
    if (!style_.multiline) return;
    out_.append("\n");
    out_.append_repeated(style_.indent, level_);
  }

  void write_list(const std::vector<Value>& items) {
    if (items.empty()) return out_.append("[]");
    out_.append("[");
    ++level_;
    bool first = true;
    for (const Value& item : items) {
      if (!first) out_.append(style_.item_separator);
      first = false;
      write_break();
      write(item);
    }
    --level_;
    write_break();
    out_.append("]");
  }

  void write_key(const Value& key) {
    if (key.is_string()) return write_string(key.text());
    if (!key.is_number() && !key.is(Kind::none)) {
      raise("a key of type {} cannot be written as JSON", type_name(key));
    }
    write_string(scalar(key));
  }

  void write_dict(const DictObject& dict) {
    if (dict.entries().empty()) return out_.append("{}");
    std::vector<DictObject::Entry> entries = dict.entries();
    if (style_.sort_keys) {
      std::stable_sort(entries.begin(), entries.end(),
                       [](const auto& a, const auto& b) { return less(a.first, b.first); });
    }
    out_.append("{");
    ++level_;
    bool first = true;
    for (const auto& [key, value] : entries) {
      if (!first) out_.append(style_.item_separator);
      first = false;
      write_break();
      write_key(key);
      out_.append(style_.key_separator);
      write(value);
    }
    --level_;
    write_break();
    out_.append("}");
  }

  Runtime& runtime_;
  const JsonStyle& style_;
  TextBuilder out_;
  int64_t level_ = 0;
};

}  // namespace

std::string to_json(Runtime& runtime, const Value& value, const JsonStyle& style) {
  JsonWriter writer(runtime, style);
  writer.write(value);
  return writer.take();
}

}  // namespace klotski::jinja
