#pragma once

#include <array>
#include <optional>
#include <string_view>

#include "text/jinja/ast.h"
#include "text/jinja/runtime.h"

namespace klotski::jinja {

// Python's operators.
Value arithmetic(Runtime& runtime, Operator op, const Value& a, const Value& b);
bool compare(Runtime& runtime, Operator op, const Value& a, const Value& b);
bool contains(Runtime& runtime, const Value& container, const Value& item);
Value negate(const Value& value);
Value positive(const Value& value);

// value.name and value[key] by the rules of Jinja's sandbox; undefined where there is nothing.
Value get_attribute(Runtime& runtime, const Value& value, std::string_view name);
// Only attributes that Python's getattr finds, keys of a dict left out; missing where it would
// fail.
Value own_attribute(Runtime& runtime, const Value& value, std::string_view name);
Value get_item(Runtime& runtime, const Value& value, const Value& key);
// value[start:stop:step]; each bound may be None.
Value get_slice(Runtime& runtime, const Value& value, const std::array<Value, 3>& bounds);

// Calls `function`; fails where it is not callable.
Value call_value(Runtime& runtime, const Value& function, Arguments arguments);

// 10**n and the like, checked; nothing where it does not fit 64 bits.
std::optional<int64_t> integer_power(int64_t base, int64_t exponent);

}  // namespace klotski::jinja
