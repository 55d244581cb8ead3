#include <algorithm>
#include <array>

#include "base/error.h"
#include "text/jinja/loop.h"
#include "text/jinja/methods.h"
#include "text/jinja/operators.h"
#include "text/jinja/unicode.h"

namespace klotski::jinja {
namespace {

// Attributes that every object of Python has and the sandbox hides.
bool is_internal(std::string_view name) {
  static constexpr std::array<std::string_view, 22> kNames = {
      "__class__", "__delattr__",      "__dir__",    "__doc__",  "__eq__",     "__format__",
      "__ge__",    "__getattribute__", "__gt__",     "__hash__", "__init__",   "__init_subclass__",
      "__le__",    "__lt__",           "__ne__",     "__new__",  "__reduce__", "__reduce_ex__",
      "__repr__",  "__setattr__",      "__sizeof__", "__str__"};
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

Value no_such(const Value& value, std::string_view what, std::string_view name) {
  return Value::undefined(
      fmt::format("'{} object' has no {} {}", type_name(value), what, in_quotes(name)));
}

// Attributes that are neither methods nor keys; missing where there is none.
Value data_attribute(Runtime& runtime, const Value& value, std::string_view name) {
  switch (value.kind()) {
    case Kind::name_space: {
      const Value* found = value.as<NamespaceObject>().attributes.find(name);
      return found != nullptr && name.substr(0, 1) != "_" ? *found : Value();
    }
    case Kind::loop:
      return value.mutable_as<LoopObject>().attribute(runtime, name);
    case Kind::cycler: {
      const auto& cycler = value.as<CyclerObject>();
      if (name == "current") return cycler.items[cycler.position];
      if (name == "pos") return Value::integer(static_cast<int64_t>(cycler.position));
      return Value();
    }
    case Kind::callable:
      return value.as<CallableObject>().attribute(runtime, name);
    case Kind::tuple:
      if (!value.as<ListObject>().group) return Value();
      if (name == "grouper") return value.items()[0];
      return name == "list" ? value.items()[1] : Value();
    case Kind::range: {
      const auto& range = value.as<RangeObject>();
      if (name == "start") return Value::integer(range.start);
      if (name == "stop") return Value::integer(range.stop);
      return name == "step" ? Value::integer(range.step) : Value();
    }
    case Kind::boolean:
    case Kind::integer:
      if (name == "real" || name == "numerator") return Value::integer(value.integer());
      if (name == "imag") return Value::integer(0);
      return name == "denominator" ? Value::integer(1) : Value();
    case Kind::real:
      if (name == "real") return value;
      return name == "imag" ? Value::real(0) : Value();
    default:
      return Value();
  }
}

}  // namespace

Value own_attribute(Runtime& runtime, const Value& value, std::string_view name) {
  if (const MethodEntry* method = find_method(value.kind(), name)) {
    return bind_method(runtime, value, method);
  }
  if (is_internal(name) || is_hidden_method(value.kind(), name)) {
    return Value::undefined(fmt::format("access to attribute {} is unsafe", in_quotes(name)));
  }
  return data_attribute(runtime, value, name);
}

namespace {

Value character_at(Runtime& runtime, const Value& text, int64_t index) {
  const auto& object = text.as<StringObject>();
  size_t begin = static_cast<size_t>(index);
  if (!object.ascii()) {
    runtime.budget().scan(object.text.size());
    begin = byte_offset(object.text, index);
  }
  size_t end = begin;
  next_code_point(object.text, &end);
  return runtime.text(object.text.substr(begin, end - begin));
}

// value[index] of a sequence; missing where Python raises an IndexError or TypeError.
Value element_at(Runtime& runtime, const Value& value, const Value& key) {
  if (!key.is_integral()) return Value();
  const bool indexable = value.is_sequence() || value.is_string() || value.is(Kind::range);
  if (!indexable) return Value();
  const int64_t length = length_of(value);
  const int64_t index = key.integer() < 0 ? key.integer() + length : key.integer();
  if (index < 0 || index >= length) return Value();
  if (value.is_string()) return character_at(runtime, value, index);
  if (value.is(Kind::range)) return Value::integer(value.as<RangeObject>().at(index));
  return value.items()[static_cast<size_t>(index)];
}

bool is_hashable(const Value& value) {
  if (value.is(Kind::tuple)) {
    for (const Value& item : value.items()) {
      if (!is_hashable(item)) return false;
    }
  }
  return !value.is(Kind::list) && !value.is(Kind::dict) && !value.is(Kind::view);
}

struct SliceRange {
  int64_t start;
  int64_t step;
  int64_t count;
};

// Begin, end and step as Python's slice.indices() gives them.
SliceRange slice_range(const std::array<Value, 3>& bounds, int64_t length) {
  const auto bound = [&](size_t i, int64_t fallback, int64_t low, int64_t high) {
    if (bounds[i].is(Kind::none)) return fallback;
    const int64_t index = require_integer(bounds[i], "a slice");
    return std::clamp(index < 0 ? index + length : index, low, high);
  };
  const int64_t step = bounds[2].is(Kind::none) ? 1 : require_integer(bounds[2], "a slice");
  if (step == 0) raise("slice step cannot be zero");
  if (step > 0) {
    const int64_t start = bound(0, 0, 0, length);
    const int64_t stop = bound(1, length, 0, length);
    return {start, step, start < stop ? (stop - start - 1) / step + 1 : 0};
  }
  const int64_t start = bound(0, length - 1, -1, length - 1);
  const int64_t stop = bound(1, -1, -1, length - 1);
  if (start <= stop) return {start, step, 0};
  // -(step + 1) does not overflow where -step would.
  const int64_t less_one = -(step + 1);
  return {start, step, less_one >= start - stop - 1 ? 1 : (start - stop - 1) / -step + 1};
}

Value slice_text(Runtime& runtime, const Value& value, const SliceRange& range) {
  const auto& object = value.as<StringObject>();
  runtime.budget().scan(object.text.size());
  if (range.step == 1) {
    const auto start = static_cast<size_t>(range.start);
    const auto count = static_cast<size_t>(range.count);
    if (object.ascii()) return runtime.text(object.text.substr(start, count), object.markup);
    const std::string_view rest =
        std::string_view(object.text).substr(byte_offset(object.text, range.start));
    return runtime.text(std::string(rest.substr(0, byte_offset(rest, range.count))), object.markup);
  }
  runtime.budget().allocate(static_cast<uint64_t>(object.code_points), sizeof(char32_t));
  std::u32string characters;
  for (size_t at = 0; at < object.text.size();) {
    characters += next_code_point(object.text, &at);
  }
  std::string out;
  for (int64_t i = 0; i < range.count; ++i) {
    append_code_point(&out, characters[static_cast<size_t>(range.start + i * range.step)]);
  }
  return runtime.text(std::move(out), object.markup);
}

}  // namespace

Value get_attribute(Runtime& runtime, const Value& value, std::string_view name) {
  runtime.budget().step();
  if (value.is(Kind::undefined) && !is_internal(name)) raise_undefined(value);
  Value found = own_attribute(runtime, value, name);
  if (found.is(Kind::missing) && value.is(Kind::dict)) {
    if (const Value* item = value.as<DictObject>().find(name)) found = *item;
  }
  return found.is(Kind::missing) ? no_such(value, "attribute", name) : found;
}

Value get_item(Runtime& runtime, const Value& value, const Value& key) {
  runtime.budget().step();
  if (value.is(Kind::undefined)) raise_undefined(value);
  Value found;
  if (value.is(Kind::dict) && is_hashable(key)) {
    runtime.budget().step(value_weight(key));
    if (const Value* item = value.as<DictObject>().find(key)) found = *item;
  } else if (!value.is(Kind::dict)) {
    found = element_at(runtime, value, key);
  }
  if (found.is(Kind::missing) && key.is_string()) found = own_attribute(runtime, value, key.text());
  if (!found.is(Kind::missing)) return found;
  return no_such(value, "element", key.is_string() ? key.text() : type_name(key));
}

Value get_slice(Runtime& runtime, const Value& value, const std::array<Value, 3>& bounds) {
  runtime.budget().step();
  if (value.is(Kind::undefined)) raise_undefined(value);
  if (!value.is_string() && !value.is_sequence() && !value.is(Kind::range)) {
    raise("a value of type {} cannot be sliced", type_name(value));
  }
  const SliceRange range = slice_range(bounds, length_of(value));
  if (value.is_string()) return slice_text(runtime, value, range);
  if (value.is(Kind::range)) {
    const auto& whole = value.as<RangeObject>();
    const int64_t step = range.count > 1 ? range.step : 1;
    const RangeObject part{whole.at(range.start), whole.at(range.start + range.count * step),
                           whole.step * step};
    return Value::object<RangeObject>(Kind::range, std::make_shared<RangeObject>(part));
  }
  runtime.budget().allocate(static_cast<uint64_t>(range.count), sizeof(Value));
  std::vector<Value> items;
  items.reserve(static_cast<size_t>(range.count));
  for (int64_t i = 0; i < range.count; ++i) {
    items.push_back(value.items()[static_cast<size_t>(range.start + i * range.step)]);
  }
  return value.is(Kind::list) ? runtime.list(std::move(items)) : runtime.tuple(std::move(items));
}

}  // namespace klotski::jinja
