#include "text/jinja/value.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "text/jinja/budget.h"
#include "text/jinja/unicode.h"

namespace klotski::jinja {
namespace {

// Entries from which a hash table is used: with fewer a walk is quicker and saves its memory.
constexpr size_t kIndexFrom = 9;

// Saturates far above any budget.
uint64_t add_weights(uint64_t a, uint64_t b) { return std::min(a + b, uint64_t{1} << 60); }

bool equal_numbers(const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) return a.integer() == b.integer();
  if (a.is(Kind::real) && b.is(Kind::real)) return a.number() == b.number();
  const double real = a.is(Kind::real) ? a.number() : b.number();
  const int64_t integer = a.is(Kind::real) ? b.integer() : a.integer();
  return static_cast<long double>(real) == static_cast<long double>(integer);
}

bool equal_dicts(const DictObject& a, const DictObject& b) {
  if (a.entries().size() != b.entries().size()) return false;
  return std::all_of(a.entries().begin(), a.entries().end(), [&](const DictObject::Entry& entry) {
    const Value* other = b.find(entry.first);
    return other != nullptr && equal(entry.second, *other);
  });
}

bool equal_ranges(const RangeObject& a, const RangeObject& b) {
  if (a.size() != b.size()) return false;
  if (a.size() == 0) return true;
  return a.start == b.start && (a.size() == 1 || a.step == b.step);
}

// A key or item view is a set to Python; a view of values is equal to itself only.
bool equal_views(const Value& a, const Value& b) {
  const auto& left = a.as<ViewObject>();
  const auto& right = b.as<ViewObject>();
  if (left.part != right.part || left.part == ViewObject::Part::values) {
    return a.identity() == b.identity();
  }
  if (left.part == ViewObject::Part::items) return equal(left.dict, right.dict);
  const auto& keys = left.dict.as<DictObject>().entries();
  const auto& others = right.dict.as<DictObject>();
  return keys.size() == others.entries().size() &&
         std::all_of(keys.begin(), keys.end(),
                     [&](const DictObject::Entry& e) { return others.find(e.first) != nullptr; });
}

bool less_sequences(const std::vector<Value>& a, const std::vector<Value>& b) {
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    if (!equal(a[i], b[i])) return less(a[i], b[i]);
  }
  return a.size() < b.size();
}

bool less_numbers(const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) return a.integer() < b.integer();
  const auto wide = [](const Value& v) {
    return v.is(Kind::real) ? static_cast<long double>(v.number())
                            : static_cast<long double>(v.integer());
  };
  return wide(a) < wide(b);
}

}  // namespace

Value Value::undefined(std::string message) {
  return object<UndefinedObject>(
      Kind::undefined, std::make_shared<UndefinedObject>(UndefinedObject{std::move(message)}));
}

Value Value::boolean(bool value) {
  Value result(Kind::boolean);
  result.integer_ = value ? 1 : 0;
  return result;
}

Value Value::integer(int64_t value) {
  Value result(Kind::integer);
  result.integer_ = value;
  return result;
}

Value Value::real(double value) {
  Value result(Kind::real);
  result.real_ = value;
  return result;
}

Value Value::string(std::string text, bool markup) {
  const int64_t code_points = count_code_points(text);
  return object<StringObject>(Kind::string, std::make_shared<StringObject>(StringObject{
                                                std::move(text), code_points, markup}));
}

const std::string& Value::text() const { return as<StringObject>().text; }
const std::vector<Value>& Value::items() const { return as<ListObject>().items; }

const Value* DictObject::find(const Value& key) const {
  if (entries_.size() >= kIndexFrom) {
    const auto found = index_.find(key);
    return found == index_.end() ? nullptr : &entries_[found->second].second;
  }
  for (const Entry& entry : entries_) {
    if (equal(entry.first, key)) return &entry.second;
  }
  return nullptr;
}

const Value* DictObject::find(std::string_view key) const {
  if (entries_.size() >= kIndexFrom) return find(Value::string(std::string(key)));
  for (const Entry& entry : entries_) {
    if (entry.first.is_string() && entry.first.text() == key) return &entry.second;
  }
  return nullptr;
}

void DictObject::set(const Value& key, const Value& value) {
  require_hashable(key);
  depth = std::max({depth, 1 + value_depth(key), 1 + value_depth(value)});
  weight = add_weights(weight, add_weights(value_weight(key), value_weight(value)));
  if (const Value* found = find(key)) {
    *const_cast<Value*>(found) = value;
    return;
  }
  entries_.emplace_back(key, value);
  if (entries_.size() == kIndexFrom) {
    for (size_t i = 0; i < entries_.size(); ++i) index_.emplace(entries_[i].first, i);
  } else if (entries_.size() > kIndexFrom) {
    index_.emplace(key, entries_.size() - 1);
  }
}

int64_t RangeObject::size() const {
  if (step > 0) return start < stop ? (stop - start - 1) / step + 1 : 0;
  return start > stop ? (start - stop - 1) / -step + 1 : 0;
}

size_t ValueHash::operator()(const Value& value) const {
  switch (value.kind()) {
    case Kind::boolean:
    case Kind::integer:
      return std::hash<double>()(static_cast<double>(value.integer()));
    case Kind::real:
      return std::hash<double>()(value.number());
    case Kind::string:
      return std::hash<std::string>()(value.text());
    case Kind::tuple: {
      size_t seed = 17;
      for (const Value& item : value.items()) seed = seed * 1000003 + (*this)(item);
      return seed;
    }
    case Kind::none:
    case Kind::undefined:
      return 5;
    default:
      return std::hash<const void*>()(value.identity());
  }
}

bool ValueEqual::operator()(const Value& a, const Value& b) const { return equal(a, b); }

int value_depth(const Value& value) {
  int depth = 0;
  switch (value.kind()) {
    case Kind::list:
    case Kind::tuple:
      depth = value.as<ListObject>().depth;
      break;
    case Kind::dict:
      depth = value.as<DictObject>().depth;
      break;
    case Kind::view:
      depth = 1 + value.as<ViewObject>().dict.as<DictObject>().depth;
      break;
    case Kind::iterator:
      depth = value.as<IteratorObject>().depth();
      break;
    case Kind::callable:
      depth = value.as<CallableObject>().depth();
      break;
    default:
      break;
  }
  if (depth > kMaxValueDepth) raise("a value is nested too deeply (limit {})", kMaxValueDepth);
  return depth;
}

uint64_t value_weight(const Value& value) {
  switch (value.kind()) {
    case Kind::string:
      return 1 + value.text().size() / 64;
    case Kind::list:
    case Kind::tuple:
      return value.as<ListObject>().weight;
    case Kind::dict:
      return value.as<DictObject>().weight;
    case Kind::view:
      return value_weight(value.as<ViewObject>().dict);
    default:
      return 1;
  }
}

bool truthy(const Value& value) {
  switch (value.kind()) {
    case Kind::missing:
    case Kind::undefined:
    case Kind::none:
      return false;
    case Kind::boolean:
    case Kind::integer:
      return value.integer() != 0;
    case Kind::real:
      return value.number() != 0;
    default:
      return length_of(value) != 0;
  }
}

bool equal(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) return equal_numbers(a, b);
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::undefined:
    case Kind::none:
      return true;
    case Kind::string:
      return a.text() == b.text();
    case Kind::list:
    case Kind::tuple:
      return a.identity() == b.identity() ||
             std::equal(a.items().begin(), a.items().end(), b.items().begin(), b.items().end(),
                        ValueEqual());
    case Kind::dict:
      return a.identity() == b.identity() || equal_dicts(a.as<DictObject>(), b.as<DictObject>());
    case Kind::range:
      return equal_ranges(a.as<RangeObject>(), b.as<RangeObject>());
    case Kind::view:
      return equal_views(a, b);
    default:
      return a.identity() == b.identity();
  }
}

bool less(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) return less_numbers(a, b);
  if (a.is_string() && b.is_string()) return a.text() < b.text();
  if (a.is_sequence() && a.kind() == b.kind()) return less_sequences(a.items(), b.items());
  if (a.is(Kind::undefined)) raise("{}", a.as<UndefinedObject>().message);
  if (b.is(Kind::undefined)) raise("{}", b.as<UndefinedObject>().message);
  raise("values of type {} and {} cannot be ordered", type_name(a), type_name(b));
}

void require_hashable(const Value& value) {
  if (value.is(Kind::tuple)) {
    for (const Value& item : value.items()) require_hashable(item);
  } else if (value.is(Kind::list) || value.is(Kind::dict) || value.is(Kind::view)) {
    raise("a {} cannot be a key", type_name(value));
  }
}

std::string_view type_name(const Value& value) {
  switch (value.kind()) {
    case Kind::missing:
    case Kind::undefined:
      return "Undefined";
    case Kind::none:
      return "NoneType";
    case Kind::boolean:
      return "bool";
    case Kind::integer:
      return "int";
    case Kind::real:
      return "float";
    case Kind::string:
      return value.as<StringObject>().markup ? "Markup" : "str";
    case Kind::list:
      return "list";
    case Kind::tuple:
      return "tuple";
    case Kind::dict:
      return "dict";
    case Kind::view:
      return "dict view";
    case Kind::range:
      return "range";
    case Kind::iterator:
      return "generator";
    case Kind::callable:
      return "function";
    case Kind::name_space:
      return "Namespace";
    case Kind::loop:
      return "LoopContext";
    case Kind::cycler:
      return "Cycler";
  }
  return "value";
}

int64_t length_of(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
      return 0;
    case Kind::string:
      return value.as<StringObject>().code_points;
    case Kind::list:
    case Kind::tuple:
      return static_cast<int64_t>(value.items().size());
    case Kind::dict:
      return static_cast<int64_t>(value.as<DictObject>().entries().size());
    case Kind::view:
      return length_of(value.as<ViewObject>().dict);
    case Kind::range:
      return value.as<RangeObject>().size();
    default:
      return -1;
  }
}

}  // namespace klotski::jinja
