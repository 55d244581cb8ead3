#pragma once

#include <string_view>

#include "text/jinja/runtime.h"

namespace klotski::jinja {

// The operand behind `is`: a test, in Jinja's words.
struct TestEntry {
  std::string_view name;
  std::string_view signature;  // signature for BoundArguments
  bool (*function)(Runtime&, const Value& value, const BoundArguments&);
};

// Null where there is none of that name.
const TestEntry* find_test(std::string_view name);
bool apply_test(Runtime& runtime, const TestEntry& test, const Value& value, Arguments arguments);

}  // namespace klotski::jinja
