#include <algorithm>

#include "base/numbers.h"
#include "text/jinja/format.h"
#include "text/jinja/format_spec.h"
#include "text/jinja/operators.h"

namespace klotski::jinja {
namespace {

// Fields may hold fields in their specifiers, one level deep, as in Python.
constexpr int kMaxFieldDepth = 2;

class BraceFormatter {
 public:
  BraceFormatter(Runtime& runtime, const Arguments& arguments)
      : runtime_(runtime), arguments_(arguments) {}

  std::string run(std::string_view format, int depth) {
    if (depth > kMaxFieldDepth) raise("format() fields are nested too deeply");
    TextBuilder out(runtime_);
    for (size_t at = 0; at < format.size();) {
      const size_t brace = std::min(format.find_first_of("{}", at), format.size());
      out.append(format.substr(at, brace - at));
      if (brace == format.size()) break;
      if (brace + 1 < format.size() && format[brace + 1] == format[brace]) {
        out.append(format.substr(brace, 1));
        at = brace + 2;
        continue;
      }
      if (format[brace] == '}') raise("format() has a single '}}'");
      const size_t end = field_end(format, brace + 1);
      out.append(field(format.substr(brace + 1, end - brace - 1), depth));
      at = end + 1;
    }
    return out.take();
  }

 private:
  static size_t field_end(std::string_view format, size_t at) {
    int open = 1;
    for (; at < format.size(); ++at) {
      if (format[at] == '{') ++open;
      if (format[at] == '}' && --open == 0) return at;
    }
    raise("format() lacks a '}}'");
  }

  std::string field(std::string_view text, int depth) {
    // A ':' or '!' inside [] belongs to the name.
    size_t name_end = 0;
    bool bracket = false;
    for (; name_end < text.size(); ++name_end) {
      if (text[name_end] == '[') bracket = true;
      if (text[name_end] == ']') bracket = false;
      if (!bracket && (text[name_end] == ':' || text[name_end] == '!')) break;
    }
    Value value = lookup(text.substr(0, name_end));
    std::string_view rest = text.substr(name_end);
    if (!rest.empty() && rest[0] == '!') {
      const char conversion = rest.size() > 1 ? rest[1] : '\0';
      if (conversion != 'r' && conversion != 's' && conversion != 'a') {
        raise("format() has an unknown conversion");
      }
      value = runtime_.text(conversion == 's' ? to_text(runtime_, value) : repr(runtime_, value));
      rest.remove_prefix(2);
      if (!rest.empty() && rest[0] != ':') raise("format() expects ':' behind a conversion");
    }
    if (!rest.empty()) rest.remove_prefix(1);
    return format_value(runtime_, value, run(rest, depth + 1));
  }

  Value argument(std::string_view name) {
    if (name.empty()) {
      if (manual_) raise("format() mixes automatic and manual numbering");
      automatic_ = true;
      return positional(next_++);
    }
    if (const auto index = parse_int(name); index && *index >= 0) {
      if (automatic_) raise("format() mixes automatic and manual numbering");
      manual_ = true;
      return positional(static_cast<size_t>(*index));
    }
    runtime_.budget().step(1 + arguments_.keyword.size() / 4);
    for (const auto& [key, value] : arguments_.keyword) {
      if (key == name) return value;
    }
    raise("format() names an argument that was not given");
  }

  Value positional(size_t index) const {
    if (index >= arguments_.positional.size()) raise("format() has too few arguments");
    return arguments_.positional[index];
  }

  Value lookup(std::string_view name) {
    const size_t first = std::min(name.find_first_of(".["), name.size());
    Value value = argument(name.substr(0, first));
    for (std::string_view rest = name.substr(first); !rest.empty();) {
      const bool item = rest[0] == '[';
      const size_t end = item ? rest.find(']') : std::min(rest.find_first_of(".[", 1), rest.size());
      if (end == std::string_view::npos || end < 2) raise("format() has an empty attribute");
      const std::string_view part = rest.substr(1, end - 1);
      const auto index = item ? parse_int(part) : std::nullopt;
      value = !item   ? get_attribute(runtime_, value, part)
              : index ? get_item(runtime_, value, Value::integer(*index))
                      : get_item(runtime_, value, runtime_.text(std::string(part)));
      rest.remove_prefix(item ? end + 1 : end);
      if (!rest.empty() && rest[0] != '.' && rest[0] != '[') raise("format() has a bad field name");
    }
    return value;
  }

  Runtime& runtime_;
  const Arguments& arguments_;
  size_t next_ = 0;
  bool automatic_ = false;
  bool manual_ = false;
};

}  // namespace

std::string format_braces(Runtime& runtime, std::string_view format, const Arguments& arguments) {
  return BraceFormatter(runtime, arguments).run(format, 0);
}

}  // namespace klotski::jinja
