#include <algorithm>
#include <cctype>

#include "text/jinja/filters.h"
#include "text/jinja/format.h"
#include "text/jinja/unicode.h"

namespace klotski::jinja {
namespace {

using Bound = BoundArguments;

std::string escaped(Runtime& rt, const Value& value) {
  const std::string text = to_text(rt, value);
  // An escaped character needs at most six bytes.
  if (!is_markup(value)) rt.budget().allocate(text.size(), 6);
  return is_markup(value) ? text : escape_html(text);
}

Value filter_escape(Runtime& rt, const Value& input, const Bound&) {
  return is_markup(input) ? input : rt.text(escaped(rt, input), true);
}

Value filter_force_escape(Runtime& rt, const Value& input, const Bound&) {
  const Value text = to_text_value(rt, input);
  rt.budget().allocate(text.text().size(), 6);
  return rt.text(escape_html(text.text()), true);
}

Value filter_safe(Runtime& rt, const Value& input, const Bound&) {
  return rt.text(to_text(rt, input), true);
}

// Comments and tags out, runs of blanks to one, the commonest entities back to characters.
Value filter_strip_tags(Runtime& rt, const Value& input, const Bound&) {
  std::string text = to_text(rt, input);
  rt.budget().scan_characters(text.size());
  const auto remove = [&](std::string_view open, std::string_view close) {
    std::string out;
    size_t begin = 0;
    while (true) {
      const size_t start = text.find(open, begin);
      const size_t end = start == std::string::npos ? std::string::npos : text.find(close, start);
      if (end == std::string::npos) break;
      out += text.substr(begin, start - begin);
      begin = end + close.size();
    }
    text = out + text.substr(begin);
  };
  remove("<!--", "-->");
  remove("<", ">");
  std::string joined;
  for (std::string_view rest = strip_space(text); !rest.empty();) {
    size_t end = 0;
    while (end < rest.size()) {
      size_t after = end;
      if (is_space(next_code_point(rest, &after))) break;
      end = after;
    }
    if (!joined.empty()) joined += ' ';
    joined += rest.substr(0, end);
    rest = strip_space(rest.substr(end), true, false);
  }
  static constexpr std::pair<std::string_view, char> kEntities[] = {
      {"&lt;", '<'},   {"&gt;", '>'},   {"&#34;", '"'},
      {"&quot;", '"'}, {"&#39;", '\''}, {"&amp;", '&'}};
  std::string out;
  for (size_t at = 0; at < joined.size();) {
    size_t used = 0;
    for (const auto& [name, character] : kEntities) {
      if (joined.compare(at, name.size(), name) != 0) continue;
      out += character;
      used = name.size();
      break;
    }
    if (used == 0) out += joined[at];
    at += std::max<size_t>(used, 1);
  }
  return rt.text(std::move(out));
}

void append_url_quoted(TextBuilder* out, std::string_view text, bool query) {
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = byte < 0x80 && (std::isalnum(byte) != 0 || c == '_' || c == '.' ||
                                       c == '-' || c == '~' || (c == '/' && !query));
    if (plain) {
      out->append({&c, 1});
    } else if (query && c == ' ') {
      out->append("+");
    } else {
      out->append(fmt::format("%{:02X}", byte));
    }
  }
}

Value filter_url_encode(Runtime& rt, const Value& input, const Bound&) {
  TextBuilder out(rt);
  if (input.is_string() || !is_iterable(input)) {
    append_url_quoted(&out, to_text(rt, input), false);
    return out.value();
  }
  bool first = true;
  const auto pair = [&](const Value& key, const Value& value) {
    if (!first) out.append("&");
    first = false;
    append_url_quoted(&out, to_text(rt, key), true);
    out.append("=");
    append_url_quoted(&out, to_text(rt, value), true);
  };
  if (input.is(Kind::dict)) {
    for (const auto& entry : input.as<DictObject>().entries()) pair(entry.first, entry.second);
    return out.value();
  }
  for (const Value& item : elements(rt, input)) {
    const std::vector<Value> parts = elements(rt, item);
    if (parts.size() != 2) raise("urlencode needs pairs");
    pair(parts[0], parts[1]);
  }
  return out.value();
}

Value filter_xml_attributes(Runtime& rt, const Value& input, const Bound& args) {
  if (input.is(Kind::undefined)) raise_undefined(input);
  if (!input.is(Kind::dict)) raise("xmlattr needs a mapping, found {}", type_name(input));
  TextBuilder out(rt);
  bool first = true;
  for (const auto& [key, value] : input.as<DictObject>().entries()) {
    if (value.is(Kind::none) || value.is(Kind::undefined)) continue;
    const std::string name = to_text(rt, key);
    if (name.find_first_of(" \t\n\r\f\v/>=") != std::string::npos) {
      raise("xmlattr: invalid character in an attribute's name");
    }
    if (!first || args.boolean(0, true)) out.append(" ");
    first = false;
    out.append(escaped(rt, key) + "=\"" + escaped(rt, value) + "\"");
  }
  return out.value();
}

Value refuse(Runtime&, const Value&, const Arguments&) {
  raise("this filter is not available in chat templates");
}

constexpr FilterEntry kMarkupFilters[] = {
    {"e", "", filter_escape},
    {"escape", "", filter_escape},
    {"forceescape", "", filter_force_escape},
    {"random", "", nullptr, refuse},
    {"safe", "", filter_safe},
    {"striptags", "", filter_strip_tags},
    {"urlencode", "", filter_url_encode},
    {"urlize", "", nullptr, refuse},
    {"xmlattr", "autospace", filter_xml_attributes},
};

}  // namespace

std::span<const FilterEntry> markup_filters() { return kMarkupFilters; }

}  // namespace klotski::jinja
