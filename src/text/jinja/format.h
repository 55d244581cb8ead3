#pragma once

#include <string>
#include <string_view>

#include "text/jinja/runtime.h"

namespace klotski::jinja {

// Values written as Python's str(), repr() and float.__repr__ write them.
std::string to_text(Runtime& runtime, const Value& value);
Value to_text_value(Runtime& runtime, const Value& value);  // strings stay as they are
std::string repr(Runtime& runtime, const Value& value);
std::string repr_real(double value);

struct JsonStyle {
  bool ascii = false;
  bool sort_keys = false;
  bool multiline = false;
  std::string indent;
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};

// A value written as json.dumps writes it.
std::string to_json(Runtime& runtime, const Value& value, const JsonStyle& style);

// `format` % `arguments`.
std::string format_percent(Runtime& runtime, std::string_view format, const Value& arguments);

// format.format(arguments...); attributes and items may be used inside the fields.
std::string format_braces(Runtime& runtime, std::string_view format, const Arguments& arguments);

// & < > and quotes as entities.
std::string escape_html(std::string_view text);

// datetime.strftime
std::string format_time(Runtime& runtime, std::string_view format, const std::tm& time);

}  // namespace klotski::jinja
