#include <algorithm>
#include <functional>

#include "text/jinja/format.h"
#include "text/jinja/methods.h"
#include "text/jinja/search.h"
#include "text/jinja/unicode.h"

namespace klotski::jinja {
namespace {

using Bound = BoundArguments;

Value same_kind(Runtime& rt, const Value& self, std::string text) {
  return rt.text(std::move(text), self.as<StringObject>().markup);
}

template <std::string (*Map)(std::string_view)>
Value mapped(Runtime& rt, const Value& self, const Bound&) {
  rt.budget().allocate(self.text().size());
  return same_kind(rt, self, Map(self.text()));
}

std::string swap_case(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const char32_t c = next_code_point(text, &at);
    const std::string_view one = text.substr(begin, at - begin);
    out += is_upper(c) ? to_lower(one) : is_lower(c) ? to_upper(one) : std::string(one);
  }
  return out;
}

std::string fold_case(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const char32_t c = next_code_point(text, &at);
    if (c == 0xDF || c == 0x1E9E) {
      out += "ss";
    } else if (c == 0x3C2 || c == 0x3A3) {
      append_code_point(&out, 0x3C3);  // at every place in the word
    } else {
      out += to_lower(text.substr(begin, at - begin));
    }
  }
  return out;
}

template <bool Left, bool Right>
Value strip(Runtime& rt, const Value& self, const Bound& args) {
  rt.budget().scan(self.text().size());
  if (args.get(0).is(Kind::none)) {
    return same_kind(rt, self, std::string(strip_space(self.text(), Left, Right)));
  }
  const std::string characters = args.text(0, "");
  return same_kind(rt, self,
                   std::string(strip_characters(rt, self.text(), characters, Left, Right)));
}

Value split(Runtime& rt, const Value& self, const Bound& args) {
  return split_text(rt, self.text(), args.get(0), args.integer(1, -1));
}

Value split_right(Runtime& rt, const Value& self, const Bound& args) {
  const int64_t given = args.integer(1, -1);
  int64_t left = given < 0 ? INT64_MAX : given;
  std::string_view text = self.text();
  std::vector<Value> parts;
  const Value separator = args.get(0);
  rt.budget().scan(text.size());
  if (separator.is(Kind::none)) {
    text = strip_space(text, false, true);
    while (!text.empty()) {
      size_t begin = text.size();
      while (left > 0 && begin > 0) {
        size_t start = begin - 1;
        while (start > 0 && (static_cast<unsigned char>(text[start]) & 0xC0) == 0x80) --start;
        size_t at = start;
        if (is_space(next_code_point(text, &at))) break;
        begin = start;
      }
      if (left <= 0) begin = 0;
      if (left <= 0) text = strip_space(text, false, true);
      parts.push_back(rt.text(std::string(text.substr(begin))));
      text = strip_space(text.substr(0, begin), false, true);
      --left;
    }
  } else {
    const std::string by = args.text(0, "");
    if (by.empty()) raise("rsplit() by an empty separator");
    const BackwardSearch search(rt, text, by);
    for (size_t at = 0; left > 0 && (at = search.find(text)) != std::string_view::npos; --left) {
      parts.push_back(rt.text(std::string(text.substr(at + by.size()))));
      text = text.substr(0, at);
    }
    parts.push_back(rt.text(std::string(text)));
  }
  std::reverse(parts.begin(), parts.end());
  return rt.list(std::move(parts));
}

Value lines(Runtime& rt, const Value& self, const Bound& args) {
  rt.budget().scan(self.text().size());
  std::vector<Value> parts;
  for (const std::string_view line : split_lines(self.text(), args.boolean(0, false))) {
    parts.push_back(rt.text(std::string(line)));
  }
  return rt.list(std::move(parts));
}

// The bytes that self[start:end] covers; false where start lies behind the text's end.
bool window(const Value& self, const Bound& args, size_t first, size_t* begin, size_t* end) {
  const int64_t length = length_of(self);
  const auto clamp = [length](int64_t index) {
    return std::max<int64_t>(0, index < 0 ? index + length : index);
  };
  const int64_t from = args.get(first).is(Kind::none) ? 0 : clamp(args.integer(first, 0));
  const int64_t to = args.get(first + 1).is(Kind::none)
                         ? length
                         : std::min(length, clamp(args.integer(first + 1, 0)));
  if (from > length || from > to) return false;
  const bool ascii = self.as<StringObject>().ascii();
  *begin = ascii ? static_cast<size_t>(from) : byte_offset(self.text(), from);
  *end = ascii ? static_cast<size_t>(to) : byte_offset(self.text(), to);
  return true;
}

// The first or last place of `needle` in `text`, at the cost of one pass.
template <bool FromRight>
size_t search(Runtime& rt, std::string_view text, std::string_view needle) {
  if (FromRight && needle.empty()) return text.size();
  if (FromRight) return BackwardSearch(rt, text, needle).find(text);
  charge_search(rt, text, needle);
  return find_text(text, needle);
}

template <bool FromRight>
int64_t find_position(Runtime& rt, const Value& self, const Bound& args) {
  rt.budget().scan(self.text().size());
  const std::string needle = args.text(0, "");
  size_t begin = 0;
  size_t end = 0;
  if (!window(self, args, 1, &begin, &end)) return -1;
  const std::string_view text = std::string_view(self.text()).substr(begin, end - begin);
  const size_t found = search<FromRight>(rt, text, needle);
  if (found == std::string_view::npos) return -1;
  return count_code_points(std::string_view(self.text()).substr(0, begin + found));
}

template <bool FromRight>
Value find(Runtime& rt, const Value& self, const Bound& args) {
  return Value::integer(find_position<FromRight>(rt, self, args));
}

template <bool FromRight>
Value index(Runtime& rt, const Value& self, const Bound& args) {
  const int64_t position = find_position<FromRight>(rt, self, args);
  if (position < 0) raise("substring not found");
  return Value::integer(position);
}

Value count(Runtime& rt, const Value& self, const Bound& args) {
  rt.budget().scan(self.text().size());
  const std::string needle = args.text(0, "");
  size_t begin = 0;
  size_t end = 0;
  if (!window(self, args, 1, &begin, &end)) return Value::integer(0);
  const std::string_view text = std::string_view(self.text()).substr(begin, end - begin);
  if (needle.empty()) return Value::integer(count_code_points(text) + 1);
  charge_search(rt, text, needle);
  int64_t found = 0;
  for (size_t at = 0; (at = find_text(text, needle, at)) != std::string_view::npos;
       at += needle.size()) {
    rt.budget().step();
    ++found;
  }
  return Value::integer(found);
}

template <bool AtEnd>
bool matches(std::string_view text, const Value& part) {
  if (!part.is_string()) raise("startswith() and endswith() expect strings");
  const std::string& wanted = part.text();
  if (wanted.size() > text.size()) return false;
  return text.substr(AtEnd ? text.size() - wanted.size() : 0, wanted.size()) == wanted;
}

template <bool AtEnd>
Value has_affix(Runtime& rt, const Value& self, const Bound& args) {
  rt.budget().scan(self.text().size());
  rt.budget().step(value_weight(args[0]));
  size_t begin = 0;
  size_t end = 0;
  const bool inside = window(self, args, 1, &begin, &end);
  if (!args[0].is(Kind::tuple) && !args[0].is_string()) {
    raise("startswith() and endswith() expect a string or a tuple of strings");
  }
  if (!inside) return Value::boolean(false);
  const std::string_view text = std::string_view(self.text()).substr(begin, end - begin);
  if (args[0].is_string()) return Value::boolean(matches<AtEnd>(text, args[0]));
  const auto& any = args[0].items();
  return Value::boolean(std::any_of(
      any.begin(), any.end(), [text](const Value& part) { return matches<AtEnd>(text, part); }));
}

Value replace(Runtime& rt, const Value& self, const Bound& args) {
  const std::string from = args.text(0, "");
  const std::string to = args.text(1, "");
  const std::string out = replace_text(rt, self.text(), from, to, args.integer(2, -1));
  return same_kind(rt, self, out);
}

template <bool AtEnd>
Value remove_affix(Runtime& rt, const Value& self, const Bound& args) {
  const std::string affix = args.text(0, "");
  if (affix.empty() || !matches<AtEnd>(self.text(), args[0])) return self;
  const size_t rest = self.text().size() - affix.size();
  return same_kind(rt, self, self.text().substr(AtEnd ? 0 : affix.size(), rest));
}

Value join(Runtime& rt, const Value& self, const Bound& args) {
  TextBuilder out(rt);
  bool first = true;
  for (const Value& item : elements(rt, args[0])) {
    if (!item.is_string()) raise("join() expects strings, found {}", type_name(item));
    if (!first) out.append(self.text());
    first = false;
    out.append(item.text());
  }
  return out.value();
}

template <char Align>
Value justify(Runtime& rt, const Value& self, const Bound& args) {
  const int64_t missing = missing_width(self, require_integer(args[0], "a width"));
  const std::string fill = args.text(1, " ");
  if (count_code_points(fill) != 1) raise("a fill must be one character");
  TextBuilder out(rt);
  if (Align == '>') out.append_repeated(fill, missing);
  out.append(self.text());
  if (Align == '<') out.append_repeated(fill, missing);
  return out.value();
}

Value center(Runtime& rt, const Value& self, const Bound& args) {
  const std::string fill = args.text(1, " ");
  if (count_code_points(fill) != 1) raise("a fill must be one character");
  return rt.text(center_text(rt, self, require_integer(args[0], "a width"), fill));
}

Value zero_fill(Runtime& rt, const Value& self, const Bound& args) {
  const int64_t missing = missing_width(self, require_integer(args[0], "a width"));
  const std::string& text = self.text();
  const size_t sign = !text.empty() && (text[0] == '-' || text[0] == '+') ? 1 : 0;
  TextBuilder out(rt);
  out.append(text.substr(0, sign));
  out.append_repeated("0", missing);
  out.append(text.substr(sign));
  return out.value();
}

template <bool FromRight>
Value partition(Runtime& rt, const Value& self, const Bound& args) {
  rt.budget().scan(self.text().size());
  const std::string by = args.text(0, "");
  if (by.empty()) raise("partition() by an empty separator");
  const std::string& text = self.text();
  const size_t at = search<FromRight>(rt, text, by);
  if (at == std::string::npos) {
    const Value nothing = rt.text("");
    return FromRight ? rt.tuple({nothing, nothing, self}) : rt.tuple({self, nothing, nothing});
  }
  return rt.tuple({rt.text(text.substr(0, at)), rt.text(by), rt.text(text.substr(at + by.size()))});
}

Value expand_tabs(Runtime& rt, const Value& self, const Bound& args) {
  const int64_t size = args.integer(0, 8);
  TextBuilder out(rt);
  int64_t column = 0;
  for (const char c : self.text()) {
    if (c == '\t') {
      const int64_t blanks = size > 0 ? size - column % size : 0;
      out.append_repeated(" ", blanks);
      column += blanks;
    } else {
      out.append({&c, 1});
      if ((static_cast<unsigned char>(c) & 0xC0) != 0x80) ++column;
      if (c == '\n' || c == '\r') column = 0;
    }
  }
  return out.value();
}

bool all_characters(std::string_view text, const std::function<bool(char32_t)>& holds) {
  for (size_t at = 0; at < text.size();) {
    if (!holds(next_code_point(text, &at))) return false;
  }
  return true;
}

template <bool (*Holds)(char32_t)>
Value all_are(Runtime& rt, const Value& self, const Bound&) {
  rt.budget().scan_characters(self.text().size());
  return Value::boolean(!self.text().empty() && all_characters(self.text(), Holds));
}

bool is_alphanumeric(char32_t c) { return is_alpha(c) || is_numeric(c); }

template <bool Upper>
Value is_case(Runtime& rt, const Value& self, const Bound&) {
  rt.budget().scan_characters(self.text().size());
  bool found = false;
  const bool fits = all_characters(self.text(), [&found](char32_t c) {
    found = found || (Upper ? is_upper(c) : is_lower(c));
    return !is_title(c) && !(Upper ? is_lower(c) : is_upper(c));
  });
  return Value::boolean(found && fits);
}

Value is_title_case(Runtime& rt, const Value& self, const Bound&) {
  rt.budget().scan_characters(self.text().size());
  bool found = false;
  bool inside_word = false;
  const bool fits = all_characters(self.text(), [&](char32_t c) {
    const bool capital = is_upper(c) || is_title(c);
    const bool small = is_lower(c);
    const bool good = capital ? !inside_word : small ? inside_word : true;
    inside_word = capital || small;
    found = found || inside_word;
    return good;
  });
  return Value::boolean(found && fits);
}

Value is_identifier(Runtime& rt, const Value& self, const Bound&) {
  rt.budget().scan_characters(self.text().size());
  bool first = true;
  const bool fits = all_characters(self.text(), [&first](char32_t c) {
    return std::exchange(first, false) ? is_identifier_start(c) : is_identifier_part(c);
  });
  return Value::boolean(fits && !self.text().empty());
}

Value is_ascii(Runtime&, const Value& self, const Bound&) {
  return Value::boolean(self.as<StringObject>().ascii());
}

Value is_printable_text(Runtime& rt, const Value& self, const Bound&) {
  rt.budget().scan_characters(self.text().size());
  return Value::boolean(all_characters(self.text(), is_printable));
}

Value format(Runtime& rt, const Value& self, const Arguments& arguments) {
  return Value::string(format_braces(rt, self.text(), arguments));
}

constexpr MethodEntry kStringMethods[] = {
    {"capitalize", "", mapped<to_capitalized>},
    {"casefold", "", mapped<fold_case>},
    {"center", "$width! $fill", center},
    {"count", "$sub! $start $end", count},
    {"endswith", "$suffix! $start $end", has_affix<true>},
    {"expandtabs", "tabsize", expand_tabs},
    {"find", "$sub! $start $end", find<false>},
    {"format", "", nullptr, format},
    {"index", "$sub! $start $end", index<false>},
    {"isalnum", "", all_are<is_alphanumeric>},
    {"isalpha", "", all_are<is_alpha>},
    {"isascii", "", is_ascii},
    {"isdecimal", "", all_are<is_decimal>},
    {"isdigit", "", all_are<is_digit>},
    {"isidentifier", "", is_identifier},
    {"islower", "", is_case<false>},
    {"isnumeric", "", all_are<is_numeric>},
    {"isprintable", "", is_printable_text},
    {"isspace", "", all_are<is_space>},
    {"istitle", "", is_title_case},
    {"isupper", "", is_case<true>},
    {"join", "$iterable!", join},
    {"ljust", "$width! $fill", justify<'<'>},
    {"lower", "", mapped<to_lower>},
    {"lstrip", "$chars", strip<true, false>},
    {"partition", "$sep!", partition<false>},
    {"removeprefix", "$prefix!", remove_affix<false>},
    {"removesuffix", "$suffix!", remove_affix<true>},
    {"replace", "$old! $new! $count", replace},
    {"rfind", "$sub! $start $end", find<true>},
    {"rindex", "$sub! $start $end", index<true>},
    {"rjust", "$width! $fill", justify<'>'>},
    {"rpartition", "$sep!", partition<true>},
    {"rsplit", "sep maxsplit", split_right},
    {"rstrip", "$chars", strip<false, true>},
    {"split", "sep maxsplit", split},
    {"splitlines", "keepends", lines},
    {"startswith", "$prefix! $start $end", has_affix<false>},
    {"strip", "$chars", strip<true, true>},
    {"swapcase", "", mapped<swap_case>},
    {"title", "", mapped<to_title>},
    {"upper", "", mapped<to_upper>},
    {"zfill", "$width!", zero_fill},
};

}  // namespace

const MethodEntry* find_string_method(std::string_view name) {
  const auto* found =
      std::lower_bound(std::begin(kStringMethods), std::end(kStringMethods), name,
                       [](const MethodEntry& entry, std::string_view n) { return entry.name < n; });
  return found != std::end(kStringMethods) && found->name == name ? found : nullptr;
}

}  // namespace klotski::jinja
