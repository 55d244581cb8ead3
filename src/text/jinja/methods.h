#pragma once

#include <string_view>

#include "text/jinja/runtime.h"

namespace klotski::jinja {

using MethodFunction = Value (*)(Runtime&, const Value& self, const BoundArguments&);
using RawMethodFunction = Value (*)(Runtime&, const Value& self, const Arguments&);

// A method of a built-in type. Names in a signature that begin with "$" cannot be given by keyword.
struct MethodEntry {
  std::string_view name;
  std::string_view signature;
  MethodFunction function;
  RawMethodFunction raw = nullptr;  // instead, where any arguments are taken
};

// Null where values of that kind have no such method. Methods that would change a value do not
// exist.
const MethodEntry* find_method(Kind kind, std::string_view name);
const MethodEntry* find_string_method(std::string_view name);
// True for dict.update, list.append and the like: Python has them, the sandbox hides them.
bool is_hidden_method(Kind kind, std::string_view name);

Value bind_method(Runtime& runtime, const Value& self, const MethodEntry* method);

// Functions that methods share with filters of their name.
Value split_text(Runtime& runtime, std::string_view text, const Value& separator, int64_t most);
std::string replace_text(Runtime& runtime, std::string_view text, std::string_view from,
                         std::string_view to, int64_t most);
// How many characters `text` lacks to be `width` long; 0 where it is long enough.
int64_t missing_width(const Value& text, int64_t width);
std::string center_text(Runtime& runtime, const Value& text, int64_t width, std::string_view fill);
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends);
std::string_view strip_characters(Runtime& runtime, std::string_view text,
                                  std::string_view characters, bool left, bool right);

}  // namespace klotski::jinja
