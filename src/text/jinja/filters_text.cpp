#include <algorithm>

#include "text/jinja/filters.h"
#include "text/jinja/format.h"
#include "text/jinja/methods.h"
#include "text/jinja/unicode.h"
#include "text/jinja/wrap.h"

namespace klotski::jinja {
namespace {

using Bound = BoundArguments;

template <std::string (*Map)(std::string_view)>
Value mapped(Runtime& rt, const Value& input, const Bound&) {
  const Value text = to_text_value(rt, input);
  rt.budget().allocate(text.text().size());
  return rt.text(Map(text.text()), is_markup(input));
}

bool begins_word(char32_t c) {
  return is_space(c) || c == U'-' || c == U'(' || c == U'{' || c == U'[' || c == U'<';
}

// Unlike str.title() a word begins only after blanks, hyphens and opening brackets.
std::string title_words(std::string_view text) {
  std::string out;
  size_t word = 0;
  const auto flush = [&](size_t end) {
    if (end == word) return;
    size_t first = word;
    next_code_point(text, &first);
    out += to_upper(text.substr(word, first - word)) + to_lower(text.substr(first, end - first));
  };
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    if (!begins_word(next_code_point(text, &at))) continue;
    flush(begin);
    out += text.substr(begin, at - begin);
    word = at;
  }
  flush(text.size());
  return out;
}

Value filter_trim(Runtime& rt, const Value& input, const Bound& args) {
  const Value text = to_text_value(rt, input);
  rt.budget().scan(text.text().size());
  const std::string_view stripped =
      args.get(0).is(Kind::none) ? strip_space(text.text())
                                 : strip_characters(rt, text.text(), args.text(0, ""), true, true);
  return rt.text(std::string(stripped), is_markup(input));
}

Value filter_string(Runtime& rt, const Value& input, const Bound&) {
  return to_text_value(rt, input);
}

Value filter_center(Runtime& rt, const Value& input, const Bound& args) {
  const Value text = to_text_value(rt, input);
  return Value::string(center_text(rt, text, args.integer(0, 80), " "), is_markup(input));
}

Value filter_replace(Runtime& rt, const Value& input, const Bound& args) {
  const std::string text = to_text(rt, input);
  const std::string from = to_text(rt, args[0]);
  const std::string to = to_text(rt, args[1]);
  const int64_t most = args.get(2).is(Kind::none) ? -1 : args.integer(2, -1);
  return Value::string(replace_text(rt, text, from, to, most));
}

Value filter_indent(Runtime& rt, const Value& input, const Bound& args) {
  if (input.is(Kind::undefined)) raise_undefined(input);
  if (!input.is_string()) raise("indent needs a string, found {}", type_name(input));
  TextBuilder blanks(rt);
  const Value width = args.has(0) ? args[0] : Value::integer(4);
  if (width.is_string()) {
    blanks.append(width.text());
  } else {
    blanks.append_repeated(" ", require_integer(width, "indent"));
  }
  const std::string indentation = blanks.take();
  const bool indent_blank = args.boolean(2, false);
  const std::string text = input.text() + "\n";
  TextBuilder out(rt);
  bool first = true;
  for (const std::string_view line : split_lines(text, false)) {
    if (!first) out.append("\n");
    if (first ? args.boolean(1, false) : indent_blank || !line.empty()) out.append(indentation);
    out.append(line);
    first = false;
  }
  return out.value(is_markup(input));
}

Value filter_truncate(Runtime& rt, const Value& input, const Bound& args) {
  const int64_t length = args.integer(0, 255);
  const std::string end = args.text(2, "...");
  const int64_t leeway = args.get(3).is(Kind::none) ? 5 : args.integer(3, 5);
  // Compared before the subtraction, which could overflow.
  if (length < count_code_points(end)) raise("truncate() to less than its end mark");
  const int64_t kept = length - count_code_points(end);
  if (leeway < 0) raise("truncate() with a negative leeway");
  const int64_t size = length_of(input);
  if (size >= 0 && (size <= leeway || size - leeway <= length)) return input;
  if (!input.is_string()) raise("truncate needs a string, found {}", type_name(input));
  std::string text = input.text().substr(0, byte_offset(input.text(), kept));
  if (!args.boolean(1, false)) {
    const size_t space = text.rfind(' ');
    if (space != std::string::npos) text.resize(space);
  }
  return rt.text(text + end, is_markup(input));
}

Value filter_word_count(Runtime& rt, const Value& input, const Bound&) {
  const Value text = to_text_value(rt, input);
  rt.budget().scan_characters(text.text().size());
  int64_t words = 0;
  bool inside = false;
  for (size_t at = 0; at < text.text().size();) {
    const bool word = is_word(next_code_point(text.text(), &at));
    if (word && !inside) ++words;
    inside = word;
  }
  return Value::integer(words);
}

Value filter_word_wrap(Runtime& rt, const Value& input, const Bound& args) {
  if (input.is(Kind::undefined)) raise_undefined(input);
  if (!input.is_string()) raise("wordwrap needs a string, found {}", type_name(input));
  WrapOptions options;
  options.width = args.integer(0, 79);
  options.break_long_words = args.boolean(1, true);
  options.break_on_hyphens = args.boolean(3, true);
  const std::string joint = args.get(2).is(Kind::none) ? "\n" : args.text(2, "\n");
  TextBuilder out(rt);
  bool first_line = true;
  for (const std::string_view line : split_lines(input.text(), false)) {
    if (!first_line) out.append(joint);
    first_line = false;
    bool first = true;
    for (const std::string& piece : wrap_text(rt, line, options)) {
      if (!first) out.append(joint);
      first = false;
      out.append(piece);
    }
  }
  return out.value();
}

Value filter_format(Runtime& rt, const Value& input, const Arguments& arguments) {
  if (!arguments.positional.empty() && !arguments.keyword.empty()) {
    raise("format() takes positional or keyword arguments, not both");
  }
  const std::string format = to_text(rt, input);
  if (arguments.keyword.empty()) {
    return Value::string(format_percent(rt, format, rt.tuple(arguments.positional)));
  }
  DictObject named;
  for (const auto& [name, value] : arguments.keyword) named.set(rt.text(name), value);
  return Value::string(format_percent(rt, format, rt.dict(std::move(named))));
}

JsonStyle json_style(const Bound& args) {
  JsonStyle style;
  style.ascii = args.boolean(0, false);
  const Value indent = args.get(1);
  if (!indent.is(Kind::none)) {
    style.multiline = true;
    style.item_separator.assign(1, ',');
    if (indent.is_string()) {
      style.indent = indent.text();
    } else {
      const int64_t width = require_integer(indent, "tojson");
      if (width > 1000) raise("tojson: the indentation is too large");
      style.indent = std::string(static_cast<size_t>(std::max<int64_t>(0, width)), ' ');
    }
  }
  const Value separators = args.get(2);
  if (!separators.is(Kind::none)) {
    if (!separators.is_sequence() || separators.items().size() != 2 ||
        !separators.items()[0].is_string() || !separators.items()[1].is_string()) {
      raise("tojson: separators must be two strings");
    }
    style.item_separator = separators.items()[0].text();
    style.key_separator = separators.items()[1].text();
  }
  style.sort_keys = args.boolean(3, false);
  return style;
}

Value filter_to_json(Runtime& rt, const Value& input, const Bound& args) {
  return Value::string(to_json(rt, input, json_style(args)));
}

Value filter_pprint(Runtime& rt, const Value& input, const Bound&) {
  return Value::string(repr(rt, input));
}

constexpr FilterEntry kTextFilters[] = {
    {"capitalize", "", mapped<to_capitalized>},
    {"center", "width", filter_center},
    {"format", "", nullptr, filter_format},
    {"indent", "width first blank", filter_indent},
    {"lower", "", mapped<to_lower>},
    {"pprint", "", filter_pprint},
    {"replace", "old! new! count", filter_replace},
    {"string", "", filter_string},
    {"title", "", mapped<title_words>},
    {"tojson", "ensure_ascii indent separators sort_keys", filter_to_json},
    {"trim", "chars", filter_trim},
    {"truncate", "length killwords end leeway", filter_truncate},
    {"upper", "", mapped<to_upper>},
    {"wordcount", "", filter_word_count},
    {"wordwrap", "width break_long_words wrapstring break_on_hyphens", filter_word_wrap},
};

}  // namespace

std::span<const FilterEntry> text_filters() { return kTextFilters; }

}  // namespace klotski::jinja
