#include "text/jinja/methods.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "text/jinja/loop.h"

namespace klotski::jinja {
namespace {

using Bound = BoundArguments;

// The methods of escaped text give escaped text.
Value as_markup(Runtime& runtime, const Value& value) {
  if (value.is_string()) return runtime.text(value.text(), true);
  if (!value.is_sequence()) return value;
  std::vector<Value> items;
  for (const Value& item : value.items()) items.push_back(as_markup(runtime, item));
  return value.is(Kind::list) ? runtime.list(std::move(items)) : runtime.tuple(std::move(items));
}

class BoundMethod : public CallableObject {
 public:
  BoundMethod(Value self, const MethodEntry* method)
      : self_(std::move(self)), method_(method), depth_(1 + value_depth(self_)) {}

  Value call(Runtime& runtime, Arguments arguments) const override {
    if (method_->raw != nullptr) return method_->raw(runtime, self_, arguments);
    const Value result = method_->function(
        runtime, self_, BoundArguments(method_->name, method_->signature, std::move(arguments)));
    const bool markup = self_.is_string() && self_.as<StringObject>().markup;
    return markup ? as_markup(runtime, result) : result;
  }
  std::string describe() const override {
    return fmt::format("<built-in method {} of {} object>", method_->name, type_name(self_));
  }
  int depth() const override { return depth_; }

 private:
  Value self_;
  const MethodEntry* method_;
  int depth_;
};

template <ViewObject::Part Part>
Value dict_view(Runtime& rt, const Value& self, const Bound&) {
  rt.budget().allocate(sizeof(ViewObject));
  return Value::object<ViewObject>(Kind::view,
                                   std::make_shared<ViewObject>(ViewObject{self, Part}));
}

Value dict_get(Runtime& rt, const Value& self, const Bound& args) {
  rt.budget().step(value_weight(args[0]));
  require_hashable(args[0]);
  const Value* found = self.as<DictObject>().find(args[0]);
  return found != nullptr ? *found : args.get(1);
}

Value copy(Runtime&, const Value& self, const Bound&) { return self; }

Value sequence_count(Runtime& rt, const Value& self, const Bound& args) {
  rt.budget().step(value_weight(self));
  const auto& items = self.items();
  return Value::integer(std::count_if(items.begin(), items.end(),
                                      [&](const Value& item) { return equal(item, args[0]); }));
}

Value sequence_index(Runtime& rt, const Value& self, const Bound& args) {
  rt.budget().step(value_weight(self));
  const auto& items = self.items();
  const auto size = static_cast<int64_t>(items.size());
  const auto clamp = [size](int64_t index) {
    return std::clamp<int64_t>(index < 0 ? index + size : index, 0, size);
  };
  const int64_t end = clamp(args.integer(2, size));
  for (int64_t i = clamp(args.integer(1, 0)); i < end; ++i) {
    if (equal(items[static_cast<size_t>(i)], args[0])) return Value::integer(i);
  }
  raise("a value is not in the list");
}

Value loop_cycle(Runtime&, const Value& self, const Arguments& arguments) {
  return self.as<LoopObject>().cycle(arguments);
}

Value loop_changed(Runtime& rt, const Value& self, const Arguments& arguments) {
  return self.mutable_as<LoopObject>().changed(rt, arguments);
}

Value cycler_next(Runtime&, const Value& self, const Bound&) {
  auto& cycler = self.mutable_as<CyclerObject>();
  const Value item = cycler.items[cycler.position];
  cycler.position = (cycler.position + 1) % cycler.items.size();
  return item;
}

Value cycler_reset(Runtime&, const Value& self, const Bound&) {
  self.mutable_as<CyclerObject>().position = 0;
  return Value::none();
}

Value is_whole(Runtime&, const Value& self, const Bound&) {
  const double value = self.number();
  return Value::boolean(std::isfinite(value) && std::floor(value) == value);
}

Value bit_length(Runtime&, const Value& self, const Bound&) {
  uint64_t rest = self.integer() < 0 ? 0 - static_cast<uint64_t>(self.integer())
                                     : static_cast<uint64_t>(self.integer());
  int64_t bits = 0;
  for (; rest != 0; rest >>= 1) ++bits;
  return Value::integer(bits);
}

constexpr MethodEntry kDictMethods[] = {
    {"copy", "", copy},
    {"get", "$key! $default", dict_get},
    {"items", "", dict_view<ViewObject::Part::items>},
    {"keys", "", dict_view<ViewObject::Part::keys>},
    {"values", "", dict_view<ViewObject::Part::values>},
};
constexpr MethodEntry kListMethods[] = {
    {"copy", "", copy},
    {"count", "$value!", sequence_count},
    {"index", "$value! $start $stop", sequence_index},
};
constexpr MethodEntry kTupleMethods[] = {
    {"count", "$value!", sequence_count},
    {"index", "$value! $start $stop", sequence_index},
};
constexpr MethodEntry kLoopMethods[] = {
    {"changed", "", nullptr, loop_changed},
    {"cycle", "", nullptr, loop_cycle},
};
constexpr MethodEntry kCyclerMethods[] = {
    {"next", "", cycler_next},
    {"reset", "", cycler_reset},
};
constexpr MethodEntry kRealMethods[] = {{"is_integer", "", is_whole}};
constexpr MethodEntry kIntegerMethods[] = {{"bit_length", "", bit_length}};

template <size_t N>
const MethodEntry* find_in(const MethodEntry (&methods)[N], std::string_view name) {
  const auto* found = std::find_if(std::begin(methods), std::end(methods),
                                   [name](const MethodEntry& entry) { return entry.name == name; });
  return found == std::end(methods) ? nullptr : found;
}

}  // namespace

const MethodEntry* find_method(Kind kind, std::string_view name) {
  switch (kind) {
    case Kind::string:
      return find_string_method(name);
    case Kind::dict:
      return find_in(kDictMethods, name);
    case Kind::list:
      return find_in(kListMethods, name);
    case Kind::tuple:
      return find_in(kTupleMethods, name);
    case Kind::loop:
      return find_in(kLoopMethods, name);
    case Kind::cycler:
      return find_in(kCyclerMethods, name);
    case Kind::real:
      return find_in(kRealMethods, name);
    case Kind::integer:
    case Kind::boolean:
      return find_in(kIntegerMethods, name);
    default:
      return nullptr;
  }
}

bool is_hidden_method(Kind kind, std::string_view name) {
  static constexpr std::array<std::string_view, 6> kDict = {"clear",   "fromkeys",   "pop",
                                                            "popitem", "setdefault", "update"};
  static constexpr std::array<std::string_view, 8> kList = {"append", "clear",  "extend",  "insert",
                                                            "pop",    "remove", "reverse", "sort"};
  if (kind == Kind::dict) return std::find(kDict.begin(), kDict.end(), name) != kDict.end();
  return kind == Kind::list && std::find(kList.begin(), kList.end(), name) != kList.end();
}

Value bind_method(Runtime& runtime, const Value& self, const MethodEntry* method) {
  runtime.budget().allocate(sizeof(BoundMethod));
  return Value::object<CallableObject>(Kind::callable, std::make_shared<BoundMethod>(self, method));
}

}  // namespace klotski::jinja
