// Filters that return a generator: nothing runs before an element is asked for.
#include <functional>
#include <optional>
#include <unordered_set>

#include "base/error.h"
#include "text/jinja/filters.h"
#include "text/jinja/operators.h"
#include "text/jinja/tests.h"

namespace klotski::jinja {
namespace {

using Bound = BoundArguments;

// A generator whose step draws from a source that is opened on first use.
class Generator : public IteratorObject {
 public:
  using Step = std::function<bool(IteratorObject& source, Value* out)>;
  // Called once, before the first element.
  using Prepare = std::function<Step()>;

  Generator(Runtime& runtime, Value source, Prepare prepare)
      : IteratorObject(2 + value_depth(source)),
        runtime_(runtime),
        source_(std::move(source)),
        prepare_(std::move(prepare)) {}

  bool next(Value* out) override {
    runtime_.budget().step();
    if (finished_) return false;
    if (iterator_ == nullptr) {
      if (!step_ && !(step_ = prepare_())) finished_ = true;
      if (finished_) return false;
      iterator_ = iterate(runtime_, source_);
    }
    const DepthGuard guard(runtime_.depth(), runtime_.budget().max_depth());
    if (step_(*iterator_, out)) return true;
    finished_ = true;
    return false;
  }

 private:
  Runtime& runtime_;
  Value source_;
  Prepare prepare_;
  Step step_;
  std::shared_ptr<IteratorObject> iterator_;
  bool finished_ = false;
};

Value generate(Runtime& rt, const Value& source, Generator::Prepare prepare) {
  return rt.iterator(std::make_shared<Generator>(rt, source, std::move(prepare)));
}

const FilterEntry& require_filter(const Value& name) {
  const FilterEntry* filter = name.is_string() ? find_filter(name.text()) : nullptr;
  if (filter == nullptr) {
    raise("unknown filter {}", in_quotes(name.is_string() ? name.text() : type_name(name)));
  }
  return *filter;
}

using Transform = std::function<Value(const Value&)>;

Transform map_transform(Runtime& rt, const Arguments& arguments) {
  if (arguments.positional.empty()) {
    const BoundArguments named("map", "attribute! default", arguments);
    const AttributePath path(rt, named[0], named.get(1));
    return [&rt, path](const Value& item) { return path.get(rt, item); };
  }
  const FilterEntry& filter = require_filter(arguments.positional[0]);
  Arguments rest = arguments;
  rest.positional.erase(rest.positional.begin());
  return [&rt, &filter, rest](const Value& item) { return apply_filter(rt, filter, item, rest); };
}

Value filter_map(Runtime& rt, const Value& input, const Arguments& arguments) {
  return generate(rt, input, [&rt, input, arguments]() -> Generator::Step {
    if (!truthy(input)) return nullptr;
    return [transform = map_transform(rt, arguments)](IteratorObject& source, Value* out) {
      Value item;
      if (!source.next(&item)) return false;
      *out = transform(item);
      return true;
    };
  });
}

using Condition = std::function<bool(const Value&)>;

Condition make_condition(Runtime& rt, Arguments arguments, bool by_attribute) {
  auto& given = arguments.positional;
  std::optional<AttributePath> path;
  if (by_attribute) {
    if (given.empty()) raise("the name of an attribute is missing");
    path.emplace(rt, given[0]);
    given.erase(given.begin());
  }
  const TestEntry* test = nullptr;
  if (!given.empty()) {
    test = given[0].is_string() ? find_test(given[0].text()) : nullptr;
    if (test == nullptr) raise("unknown test in select or reject");
    given.erase(given.begin());
  }
  return [&rt, test, path, arguments](const Value& item) {
    const Value value = path ? path->get(rt, item) : item;
    return test == nullptr ? truthy(value) : apply_test(rt, *test, value, arguments);
  };
}

template <bool Wanted, bool ByAttribute>
Value filter_select(Runtime& rt, const Value& input, const Arguments& arguments) {
  return generate(rt, input, [&rt, input, arguments]() -> Generator::Step {
    if (!truthy(input)) return nullptr;
    const Condition condition = make_condition(rt, arguments, ByAttribute);
    return [&rt, condition](IteratorObject& source, Value* out) {
      while (source.next(out)) {
        rt.budget().step();
        if (condition(*out) == Wanted) return true;
      }
      return false;
    };
  });
}

Value filter_unique(Runtime& rt, const Value& input, const Bound& args) {
  const bool case_sensitive = args.boolean(0, false);
  const AttributePath path(rt, args.get(1));
  return generate(rt, input, [&rt, case_sensitive, path]() -> Generator::Step {
    auto seen = std::make_shared<std::unordered_set<Value, ValueHash, ValueEqual>>();
    return [&rt, case_sensitive, path, seen](IteratorObject& source, Value* out) {
      while (source.next(out)) {
        const Value raw = path.get(rt, *out);
        const Value key = case_sensitive ? raw : ignore_case(rt, raw);
        require_hashable(key);
        rt.budget().allocate(64);
        rt.budget().step(value_weight(key));
        if (seen->insert(key).second) return true;
      }
      return false;
    };
  });
}

Value filter_items(Runtime& rt, const Value& input, const Bound&) {
  return generate(rt, input, [&rt, input]() -> Generator::Step {
    if (input.is(Kind::undefined)) return nullptr;
    if (!input.is(Kind::dict)) raise("items needs a mapping, found {}", type_name(input));
    const auto& dict = input.as<DictObject>();
    return [&rt, &dict, at = size_t{0}](IteratorObject&, Value* out) mutable {
      if (at >= dict.entries().size()) return false;
      const auto& entry = dict.entries()[at++];
      *out = rt.tuple({entry.first, entry.second});
      return true;
    };
  });
}

Value filter_batch(Runtime& rt, const Value& input, const Bound& args) {
  const Value& size = args[0];
  const Value fill = args.get(1);
  return generate(rt, input, [&rt, size, fill]() -> Generator::Step {
    return [&rt, size, fill, batch = std::vector<Value>()](IteratorObject& source,
                                                           Value* out) mutable {
      // A batch is given out when the element behind it is drawn.
      Value item;
      while (source.next(&item)) {
        rt.budget().allocate(sizeof(Value));
        const bool full = equal(Value::integer(static_cast<int64_t>(batch.size())), size);
        if (full) *out = rt.list(std::exchange(batch, {}));
        batch.push_back(std::move(item));
        if (full) return true;
      }
      if (batch.empty()) return false;
      const int64_t wanted = fill.is(Kind::none) ? 0 : require_integer(size, "batch");
      while (static_cast<int64_t>(batch.size()) < wanted) {
        rt.budget().allocate(sizeof(Value));
        batch.push_back(fill);
      }
      *out = rt.list(std::exchange(batch, {}));
      return true;
    };
  });
}

Value filter_slice(Runtime& rt, const Value& input, const Bound& args) {
  const Value& slices = args[0];
  const Value fill = args.get(1);
  return generate(rt, input, [&rt, input, slices, fill]() -> Generator::Step {
    const std::vector<Value> items = elements(rt, input);
    const int64_t count = require_integer(slices, "slice");
    if (count == 0) raise("division by zero");
    const auto size = static_cast<int64_t>(items.size());
    return [&rt, items, count, size, fill, at = int64_t{0}](IteratorObject&, Value* out) mutable {
      if (at >= count) return false;
      const int64_t each = size / count;
      const int64_t extra = size % count;
      const int64_t begin = at * each + std::min(at, extra);
      const int64_t end = begin + each + (at < extra ? 1 : 0);
      std::vector<Value> part(items.begin() + begin, items.begin() + end);
      if (!fill.is(Kind::none) && at >= extra) part.push_back(fill);
      ++at;
      *out = rt.list(std::move(part));
      return true;
    };
  });
}

constexpr FilterEntry kLazyFilters[] = {
    {"batch", "linecount! fill_with", filter_batch},
    {"items", "", filter_items},
    {"map", "", nullptr, filter_map},
    {"reject", "", nullptr, filter_select<false, false>},
    {"rejectattr", "", nullptr, filter_select<false, true>},
    {"select", "", nullptr, filter_select<true, false>},
    {"selectattr", "", nullptr, filter_select<true, true>},
    {"slice", "slices! fill_with", filter_slice},
    {"unique", "case_sensitive attribute", filter_unique},
};

}  // namespace

std::span<const FilterEntry> lazy_filters() { return kLazyFilters; }

}  // namespace klotski::jinja
