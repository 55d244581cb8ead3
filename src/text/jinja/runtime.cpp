#include "text/jinja/runtime.h"

#include <algorithm>

#include "base/error.h"
#include "text/jinja/unicode.h"

namespace klotski::jinja {
namespace {

class SequenceIterator : public IteratorObject {
 public:
  explicit SequenceIterator(Value sequence)
      : IteratorObject(1 + value_depth(sequence)), sequence_(std::move(sequence)) {}
  bool next(Value* out) override {
    if (position_ >= sequence_.items().size()) return false;
    *out = sequence_.items()[position_++];
    return true;
  }

 private:
  Value sequence_;
  size_t position_ = 0;
};

class TextIterator : public IteratorObject {
 public:
  TextIterator(Runtime& runtime, Value text)
      : IteratorObject(1), runtime_(runtime), text_(std::move(text)) {}
  bool next(Value* out) override {
    if (position_ >= text_.text().size()) return false;
    const size_t begin = position_;
    next_code_point(text_.text(), &position_);
    *out = runtime_.text(text_.text().substr(begin, position_ - begin));
    return true;
  }

 private:
  Runtime& runtime_;
  Value text_;
  size_t position_ = 0;
};

class DictIterator : public IteratorObject {
 public:
  DictIterator(Runtime& runtime, Value dict, ViewObject::Part part)
      : IteratorObject(2 + value_depth(dict)),
        runtime_(runtime),
        dict_(std::move(dict)),
        part_(part) {}
  bool next(Value* out) override {
    const auto& entries = dict_.as<DictObject>().entries();
    if (position_ >= entries.size()) return false;
    const auto& [key, value] = entries[position_++];
    *out = part_ == ViewObject::Part::keys     ? key
           : part_ == ViewObject::Part::values ? value
                                               : runtime_.tuple({key, value});
    return true;
  }

 private:
  Runtime& runtime_;
  Value dict_;
  ViewObject::Part part_;
  size_t position_ = 0;
};

class RangeIterator : public IteratorObject {
 public:
  explicit RangeIterator(const RangeObject& range) : IteratorObject(1), range_(range) {}
  bool next(Value* out) override {
    if (position_ >= range_.size()) return false;
    *out = Value::integer(range_.at(position_++));
    return true;
  }

 private:
  RangeObject range_;
  int64_t position_ = 0;
};

class EmptyIterator : public IteratorObject {
 public:
  EmptyIterator() : IteratorObject(1) {}
  bool next(Value*) override { return false; }
};

std::vector<std::string_view> split_names(std::string_view text) {
  std::vector<std::string_view> names;
  while (!text.empty()) {
    const size_t space = std::min(text.find(' '), text.size());
    if (space > 0) names.push_back(text.substr(0, space));
    text.remove_prefix(std::min(space + 1, text.size()));
  }
  return names;
}

}  // namespace

Value Runtime::text(std::string text, bool markup) {
  budget_.allocate(text.size() + sizeof(StringObject));
  return Value::string(std::move(text), markup);
}

Value Runtime::sequence(Kind kind, std::vector<Value> items) {
  budget_.allocate(items.size(), sizeof(Value));
  budget_.allocate(sizeof(ListObject));
  int depth = 0;
  uint64_t weight = 1;
  for (const Value& item : items) {
    depth = std::max(depth, value_depth(item));
    weight = std::min(weight + value_weight(item), uint64_t{1} << 60);
  }
  return Value::object<ListObject>(
      kind, std::make_shared<ListObject>(ListObject{std::move(items), depth + 1, weight}));
}

Value Runtime::dict(DictObject dict) {
  budget_.allocate(dict.entries().size(), 2 * sizeof(Value));
  budget_.allocate(sizeof(DictObject));
  return Value::object<DictObject>(Kind::dict, std::make_shared<DictObject>(std::move(dict)));
}

Value Runtime::iterator(std::shared_ptr<IteratorObject> iterator) {
  budget_.allocate(128);
  return Value::object<IteratorObject>(Kind::iterator, std::move(iterator));
}

void TextBuilder::append_repeated(std::string_view text, int64_t count) {
  if (count <= 0 || text.empty()) return;
  runtime_.budget().allocate(static_cast<uint64_t>(count), text.size());
  text_.reserve(text_.size() + text.size() * static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) text_ += text;
}

BoundArguments::BoundArguments(std::string_view function, std::string_view signature,
                               Arguments arguments)
    : function_(function) {
  std::vector<std::string_view> names = split_names(signature);
  if (arguments.positional.size() > names.size()) {
    raise("{}() takes at most {} arguments, {} were given", function, names.size(),
          arguments.positional.size());
  }
  values_ = std::move(arguments.positional);
  values_.resize(names.size());
  for (auto& entry : arguments.keyword) {
    const std::string& key = entry.first;
    const auto same = std::find_if(names.begin(), names.end(), [&](std::string_view name) {
      return name == key || (name.size() == key.size() + 1 && name.back() == '!' &&
                             name.substr(0, key.size()) == key);
    });
    if (same == names.end()) raise("{}() has no argument {}", function, in_quotes(key));
    Value& slot = values_[static_cast<size_t>(same - names.begin())];
    if (!slot.is(Kind::missing)) raise("{}() got the argument {} twice", function, in_quotes(key));
    slot = std::move(entry.second);
  }
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i].back() == '!' && !has(i)) {
      raise("{}() lacks its argument '{}'", function, names[i].substr(0, names[i].size() - 1));
    }
  }
}

int64_t BoundArguments::integer(size_t index, int64_t fallback) const {
  return has(index) ? require_integer(values_[index], function_) : fallback;
}

bool BoundArguments::boolean(size_t index, bool fallback) const {
  return has(index) ? truthy(values_[index]) : fallback;
}

std::string BoundArguments::text(size_t index, std::string_view fallback) const {
  if (!has(index)) return std::string(fallback);
  if (values_[index].is(Kind::undefined)) raise_undefined(values_[index]);
  if (!values_[index].is_string()) {
    raise("{}() expects a string, found {}", function_, type_name(values_[index]));
  }
  return values_[index].text();
}

std::shared_ptr<IteratorObject> iterate(Runtime& runtime, const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
      return std::make_shared<EmptyIterator>();
    case Kind::string:
      return std::make_shared<TextIterator>(runtime, value);
    case Kind::list:
    case Kind::tuple:
      return std::make_shared<SequenceIterator>(value);
    case Kind::dict:
      return std::make_shared<DictIterator>(runtime, value, ViewObject::Part::keys);
    case Kind::view: {
      const auto& view = value.as<ViewObject>();
      return std::make_shared<DictIterator>(runtime, view.dict, view.part);
    }
    case Kind::range:
      return std::make_shared<RangeIterator>(value.as<RangeObject>());
    case Kind::iterator:
      return value.share<IteratorObject>();
    default:
      raise("a value of type {} cannot be iterated", type_name(value));
  }
}

bool is_iterable(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
    case Kind::string:
    case Kind::list:
    case Kind::tuple:
    case Kind::dict:
    case Kind::view:
    case Kind::range:
    case Kind::iterator:
    case Kind::loop:
      return true;
    default:
      return false;
  }
}

std::vector<Value> elements(Runtime& runtime, const Value& value) {
  if (value.is_sequence()) {
    runtime.budget().allocate(value.items().size(), sizeof(Value));
    return value.items();
  }
  std::vector<Value> items;
  const auto iterator = iterate(runtime, value);
  Value item;
  while (iterator->next(&item)) {
    runtime.budget().allocate(sizeof(Value));
    items.push_back(std::move(item));
  }
  return items;
}

void raise_undefined(const Value& value) { raise("{}", value.as<UndefinedObject>().message); }

int64_t require_integer(const Value& value, std::string_view what) {
  if (value.is(Kind::undefined)) raise_undefined(value);
  if (!value.is_integral()) raise("{} expects an integer, found {}", what, type_name(value));
  return value.integer();
}

}  // namespace klotski::jinja
