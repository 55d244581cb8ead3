#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace klotski::jinja {

class Runtime;

enum class Kind : uint8_t {
  missing,  // a slot that nothing was stored in; never seen by a template
  undefined,
  none,
  boolean,
  integer,
  real,
  string,
  list,
  tuple,
  dict,
  view,   // dict.keys(), .values(), .items()
  range,  // lazy, as in Python
  iterator,
  callable,
  name_space,
  loop,
  cycler,
};

// Containers know how deep they are nested and refuse to exceed this, so that printing, comparing
// and destroying a value never needs more stack than this many calls.
inline constexpr int kMaxValueDepth = 100;

// One value of the template language: a scalar, or shared storage that never changes once made.
// The few kinds that do change (namespace, loop, cycler) belong to the Runtime and are only pointed
// to, so values cannot form cycles that own each other.
class Value {
 public:
  Value() = default;
  static Value undefined(std::string message);
  static Value none() { return Value(Kind::none); }
  static Value boolean(bool value);
  static Value integer(int64_t value);
  static Value real(double value);
  // Uncharged: for constants and input. While rendering use Runtime::text, list, tuple and dict.
  static Value string(std::string text, bool markup = false);
  template <typename T>
  static Value object(Kind kind, std::shared_ptr<const T> object) {
    Value value(kind);
    value.object_ = std::move(object);
    return value;
  }
  // A value that refers to an object of the Runtime.
  template <typename T>
  static Value borrowed(Kind kind, T* object) {
    return Value::object(kind, std::shared_ptr<const T>(std::shared_ptr<const T>(), object));
  }

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_string() const { return kind_ == Kind::string; }
  bool is_sequence() const { return kind_ == Kind::list || kind_ == Kind::tuple; }
  // True for a boolean too: in Python a bool is an int.
  bool is_integral() const { return kind_ == Kind::integer || kind_ == Kind::boolean; }
  bool is_number() const { return is_integral() || kind_ == Kind::real; }

  int64_t integer() const { return integer_; }  // a boolean's too
  double number() const { return kind_ == Kind::real ? real_ : static_cast<double>(integer_); }
  const std::string& text() const;
  const std::vector<Value>& items() const;  // items of a list or tuple

  template <typename T>
  const T& as() const {
    return *static_cast<const T*>(object_.get());
  }
  template <typename T>
  T& mutable_as() const {
    return *const_cast<T*>(static_cast<const T*>(object_.get()));
  }
  template <typename T>
  std::shared_ptr<T> share() const {
    return std::shared_ptr<T>(object_, &mutable_as<T>());
  }
  const void* identity() const { return object_.get(); }

 private:
  explicit Value(Kind kind) : kind_(kind) {}

  Kind kind_ = Kind::missing;
  union {
    int64_t integer_ = 0;
    double real_;
  };
  std::shared_ptr<const void> object_;
};

struct UndefinedObject {
  std::string message;
};

struct StringObject {
  std::string text;
  int64_t code_points;
  bool markup;  // made by escape or safe: is not escaped again
  bool ascii() const { return static_cast<size_t>(code_points) == text.size(); }
};

inline bool is_markup(const Value& value) {
  return value.is_string() && value.as<StringObject>().markup;
}

struct ListObject {
  std::vector<Value> items;
  int depth;
  uint64_t weight;
  bool group = false;  // a tuple made by groupby, whose parts have names
};

struct ValueHash {
  size_t operator()(const Value& value) const;
};
struct ValueEqual {
  bool operator()(const Value& a, const Value& b) const;
};

// Keeps the order of insertion, as Python's dict does. Filled by one owner, then shared as const.
class DictObject {
 public:
  using Entry = std::pair<Value, Value>;

  const std::vector<Entry>& entries() const { return entries_; }
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  void set(const Value& key, const Value& value);

  int depth = 1;
  uint64_t weight = 1;

 private:
  std::vector<Entry> entries_;
  std::unordered_map<Value, size_t, ValueHash, ValueEqual> index_;
};

struct ViewObject {
  enum class Part { keys, values, items };
  Value dict;
  Part part;
};

struct RangeObject {
  int64_t start;
  int64_t stop;
  int64_t step;
  int64_t size() const;
  int64_t at(int64_t index) const { return start + index * step; }
};

// An object that is walked through once, such as the result of map, select or reverse.
class IteratorObject {
 public:
  explicit IteratorObject(int depth) : depth_(depth) {}
  virtual ~IteratorObject() = default;
  virtual bool next(Value* out) = 0;
  int depth() const { return depth_; }

 private:
  int depth_;
};

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> keyword;
};

class CallableObject {
 public:
  virtual ~CallableObject() = default;
  virtual Value call(Runtime& runtime, Arguments arguments) const = 0;
  virtual std::string describe() const = 0;
  virtual Value attribute(Runtime&, std::string_view) const { return Value(); }
  virtual int depth() const { return 1; }
};

struct NamespaceObject {
  DictObject attributes;
};

struct CyclerObject {
  std::vector<Value> items;
  size_t position = 0;
};

// 0 for scalars; throws where the value would be too deep to be put into another one.
int value_depth(const Value& value);
// Steps of a walk through the whole value. Parts that are shared count each time, so
// a list doubled into itself over and over is dear to print though cheap to hold.
uint64_t value_weight(const Value& value);

bool truthy(const Value& value);
// Python's ==, which never fails.
bool equal(const Value& a, const Value& b);
// Python's <; fails for values that cannot be ordered.
bool less(const Value& a, const Value& b);
// Fails for values that Python cannot use as a key.
void require_hashable(const Value& value);
// "str", "list", ...: as Python names the type.
std::string_view type_name(const Value& value);
// Number of elements, or -1 for values without len().
int64_t length_of(const Value& value);

}  // namespace klotski::jinja
