#include <algorithm>
#include <array>

#include "text/jinja/format.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/unicode.h"

namespace klotski::jinja {
namespace {

using GlobalFunction = Value (*)(Runtime&, const Arguments&);

class GlobalObject : public CallableObject {
 public:
  GlobalObject(std::string_view name, GlobalFunction function) : name_(name), function_(function) {}
  Value call(Runtime& runtime, Arguments arguments) const override {
    return function_(runtime, arguments);
  }
  std::string describe() const override { return fmt::format("<function {}>", name_); }

 private:
  std::string_view name_;
  GlobalFunction function_;
};

// The longest range, as in Jinja's sandbox.
constexpr int64_t kMaxRange = 100'000;
// Beyond this the arithmetic of a range could overflow.
constexpr int64_t kMaxRangeBound = int64_t{1} << 61;

Value make_range(Runtime&, const Arguments& arguments) {
  const BoundArguments args("range", "$start! $stop $step", arguments);
  RangeObject range{0, require_integer(args[0], "range"), args.integer(2, 1)};
  if (args.has(1)) range = {range.stop, args.integer(1, 0), range.step};
  if (range.step == 0) raise("range() with a step of zero");
  for (const int64_t bound : {range.start, range.stop, range.step}) {
    if (bound > kMaxRangeBound || bound < -kMaxRangeBound) raise("range() is too big");
  }
  if (range.size() > kMaxRange) raise("range() of more than {} items", kMaxRange);
  return Value::object<RangeObject>(Kind::range, std::make_shared<RangeObject>(range));
}

// Arguments of dict(...) and namespace(...): a mapping or pairs, then keywords.
DictObject collect_entries(Runtime& rt, const Arguments& arguments) {
  if (arguments.positional.size() > 1) raise("at most one positional argument is taken");
  DictObject dict;
  if (!arguments.positional.empty()) {
    const Value& source = arguments.positional[0];
    if (source.is(Kind::undefined)) raise_undefined(source);
    if (source.is(Kind::dict)) {
      rt.budget().step(source.as<DictObject>().entries().size());
      for (const auto& entry : source.as<DictObject>().entries())
        dict.set(entry.first, entry.second);
    } else {
      for (const Value& item : elements(rt, source)) {
        const std::vector<Value> pair = elements(rt, item);
        if (pair.size() != 2) raise("a dict is made of pairs");
        dict.set(pair[0], pair[1]);
      }
    }
  }
  for (const auto& [name, value] : arguments.keyword) dict.set(rt.text(name), value);
  return dict;
}

Value make_dict(Runtime& rt, const Arguments& arguments) {
  return rt.dict(collect_entries(rt, arguments));
}

Value make_namespace(Runtime& rt, const Arguments& arguments) {
  return Value::borrowed(Kind::name_space, rt.own(NamespaceObject{collect_entries(rt, arguments)}));
}

Value make_cycler(Runtime& rt, const Arguments& arguments) {
  if (!arguments.keyword.empty()) raise("cycler() takes no keyword arguments");
  if (arguments.positional.empty()) raise("cycler() needs at least one item");
  return Value::borrowed(Kind::cycler, rt.own(CyclerObject{arguments.positional, 0}));
}

class Joiner : public CallableObject {
 public:
  Joiner(Value separator, bool* used) : separator_(std::move(separator)), used_(used) {}
  Value call(Runtime& runtime, Arguments arguments) const override {
    const BoundArguments none("joiner", "", std::move(arguments));
    return std::exchange(*used_, true) ? separator_ : runtime.text("");
  }
  std::string describe() const override { return "<Joiner object>"; }
  int depth() const override { return 1 + value_depth(separator_); }

 private:
  Value separator_;
  bool* used_;
};

Value make_joiner(Runtime& rt, const Arguments& arguments) {
  const BoundArguments args("joiner", "sep", arguments);
  const Value separator = args.has(0) ? args[0] : rt.text(", ");
  return Value::object<CallableObject>(Kind::callable,
                                       std::make_shared<Joiner>(separator, rt.own(false)));
}

Value raise_exception(Runtime& rt, const Arguments& arguments) {
  const BoundArguments args("raise_exception", "message!", arguments);
  raise("{}", to_text(rt, args[0]));
}

Value strftime_now(Runtime& rt, const Arguments& arguments) {
  const BoundArguments args("strftime_now", "format!", arguments);
  std::tm time{};
  if (rt.now()) {
    time = *rt.now();
  } else {
    const std::time_t seconds = std::time(nullptr);
    localtime_r(&seconds, &time);
  }
  return Value::string(format_time(rt, args.text(0, ""), time));
}

Value refuse_lipsum(Runtime&, const Arguments&) {
  raise("lipsum() is not available in chat templates");
}

template <GlobalFunction Function>
Value global(std::string_view name) {
  static const auto kObject = std::make_shared<GlobalObject>(name, Function);
  return Value::object<CallableObject>(Kind::callable, kObject);
}

struct GlobalEntry {
  std::string_view name;
  Value (*make)(std::string_view name);
};

constexpr std::array<GlobalEntry, 8> kGlobals = {{
    {"cycler", global<make_cycler>},
    {"dict", global<make_dict>},
    {"joiner", global<make_joiner>},
    {"lipsum", global<refuse_lipsum>},
    {"namespace", global<make_namespace>},
    {"raise_exception", global<raise_exception>},
    {"range", global<make_range>},
    {"strftime_now", global<strftime_now>},
}};

}  // namespace

Value global_function(const std::string& name) {
  const auto* found = std::find_if(kGlobals.begin(), kGlobals.end(),
                                   [&](const GlobalEntry& entry) { return entry.name == name; });
  return found == kGlobals.end() ? Value() : found->make(found->name);
}

}  // namespace klotski::jinja
