#pragma once

#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/budget.h"
#include "text/jinja/value.h"

namespace klotski::jinja {

// The part of a rendering that filters, tests and methods need: the budget, the making of values
// that are charged to it, and storage for the objects that change.
class Runtime {
 public:
  Runtime(const TemplateLimits& limits, const std::optional<std::tm>& now)
      : budget_(limits), now_(now) {}

  Budget& budget() { return budget_; }
  const std::optional<std::tm>& now() const { return now_; }

  Value text(std::string text, bool markup = false);
  Value list(std::vector<Value> items) { return sequence(Kind::list, std::move(items)); }
  Value tuple(std::vector<Value> items) { return sequence(Kind::tuple, std::move(items)); }
  Value dict(DictObject dict);
  Value iterator(std::shared_ptr<IteratorObject> iterator);

  // Keeps `object` until the rendering ends.
  template <typename T>
  T* own(T object) {
    budget_.allocate(sizeof(T) + 64);
    auto owned = std::make_shared<T>(std::move(object));
    owned_.push_back(owned);
    return owned.get();
  }

  // Depth counter for recursions that have no other guard.
  int* depth() { return &depth_; }

 private:
  Value sequence(Kind kind, std::vector<Value> items);

  Budget budget_;
  std::optional<std::tm> now_;
  int depth_ = 0;
  std::vector<std::shared_ptr<void>> owned_;
};

// Collects a text and charges every piece before it is copied.
class TextBuilder {
 public:
  explicit TextBuilder(Runtime& runtime) : runtime_(runtime) {}

  void append(std::string_view text) {
    runtime_.budget().allocate(text.size());
    text_ += text;
  }
  void append_repeated(std::string_view text, int64_t count);
  std::string take() { return std::move(text_); }
  Value value(bool markup = false) { return Value::string(std::move(text_), markup); }

 private:
  Runtime& runtime_;
  std::string text_;
};

// The arguments of a call put in the order of a signature. A signature is a list of names; one that
// ends in "!" must be given. "a! b c" is f(a, b=None, c=None).
class BoundArguments {
 public:
  BoundArguments(std::string_view function, std::string_view signature, Arguments arguments);

  bool has(size_t index) const { return !values_[index].is(Kind::missing); }
  const Value& operator[](size_t index) const { return values_[index]; }
  // The argument, None where it was not given.
  Value get(size_t index) const { return has(index) ? values_[index] : Value::none(); }
  int64_t integer(size_t index, int64_t fallback) const;
  bool boolean(size_t index, bool fallback) const;
  // Fails unless it is a string.
  std::string text(size_t index, std::string_view fallback) const;

 private:
  std::string_view function_;
  std::vector<Value> values_;
};

// Elements one by one; fails for values that cannot be iterated.
std::shared_ptr<IteratorObject> iterate(Runtime& runtime, const Value& value);
bool is_iterable(const Value& value);
// All elements, each charged.
std::vector<Value> elements(Runtime& runtime, const Value& value);

// An error for an operation on an undefined value.
[[noreturn]] void raise_undefined(const Value& value);
// The integer that Python's __index__ gives, or a failure that says `what` should have been one.
int64_t require_integer(const Value& value, std::string_view what);

}  // namespace klotski::jinja
