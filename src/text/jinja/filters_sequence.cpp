#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "text/jinja/filters.h"
#include "text/jinja/format.h"
#include "text/jinja/operators.h"
#include "text/jinja/unicode.h"

namespace klotski::jinja {
namespace {

using Bound = BoundArguments;

Value filter_default(Runtime& rt, const Value& input, const Bound& args) {
  const bool absent = input.is(Kind::undefined) || (args.boolean(1, false) && !truthy(input));
  if (!absent) return input;
  return args.has(0) ? args[0] : rt.text("");
}

Value filter_length(Runtime&, const Value& input, const Bound&) {
  const int64_t length = length_of(input);
  if (length < 0) raise("a value of type {} has no length", type_name(input));
  return Value::integer(length);
}

Value filter_list(Runtime& rt, const Value& input, const Bound&) {
  return rt.list(elements(rt, input));
}

Value filter_first(Runtime& rt, const Value& input, const Bound&) {
  Value item;
  if (iterate(rt, input)->next(&item)) return item;
  return Value::undefined("No first item, sequence was empty.");
}

Value filter_last(Runtime& rt, const Value& input, const Bound&) {
  if (length_of(input) < 0) raise("a value of type {} has no last item", type_name(input));
  if (input.is_string() || input.is_sequence() || input.is(Kind::range)) {
    const Value item = get_item(rt, input, Value::integer(-1));
    if (length_of(input) > 0) return item;
  }
  std::vector<Value> items = elements(rt, input);
  if (items.empty()) return Value::undefined("No last item, sequence was empty.");
  return items.back();
}

Value filter_join(Runtime& rt, const Value& input, const Bound& args) {
  const std::string joint = args.has(0) ? to_text(rt, args[0]) : "";
  const AttributePath path(rt, args.get(1));
  TextBuilder out(rt);
  const auto iterator = iterate(rt, input);
  bool first = true;
  Value item;
  while (iterator->next(&item)) {
    rt.budget().step();
    if (!first) out.append(joint);
    first = false;
    out.append(to_text(rt, path.get(rt, item)));
  }
  return out.value();
}

Value filter_attribute(Runtime& rt, const Value& input, const Bound& args) {
  if (input.is(Kind::undefined)) raise_undefined(input);
  const std::string name = to_text(rt, args[0]);
  if (!input.is(Kind::name_space)) {
    Value found = own_attribute(rt, input, name);
    if (!found.is(Kind::missing)) return found;
  }
  return Value::undefined(
      fmt::format("'{} object' has no attribute {}", type_name(input), in_quotes(name)));
}

// Several paths, separated by commas: the key is the list of their values, also of one, since lists
// compare for equality first and then two undefined keys are no error.
class SortKey {
 public:
  SortKey(Runtime& runtime, const Value& attribute, bool case_sensitive)
      : case_sensitive_(case_sensitive) {
    if (!attribute.is_string()) {
      paths_.emplace_back(runtime, attribute);
      return;
    }
    std::string_view rest = attribute.text();
    for (size_t comma = 0; (comma = rest.find(',')) != std::string_view::npos;) {
      paths_.emplace_back(runtime, runtime.text(std::string(rest.substr(0, comma))));
      rest.remove_prefix(comma + 1);
    }
    paths_.emplace_back(runtime, runtime.text(std::string(rest)));
  }

  Value of(Runtime& runtime, const Value& item) const {
    std::vector<Value> parts;
    for (const AttributePath& path : paths_) {
      const Value part = path.get(runtime, item);
      parts.push_back(case_sensitive_ ? part : ignore_case(runtime, part));
    }
    return runtime.list(std::move(parts));
  }

 private:
  std::vector<AttributePath> paths_;
  bool case_sensitive_;
};

// The order of `keys`, equal ones as they come; `reverse` keeps that as well, as Python does.
std::vector<size_t> sorted_order(Runtime& rt, const std::vector<Value>& keys, bool reverse) {
  charge_sorting(rt, keys);
  std::vector<size_t> order(keys.size());
  std::iota(order.begin(), order.end(), size_t{0});
  // less() fails, as Python does, for keys that cannot be ordered.
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return reverse ? less(keys[b], keys[a]) : less(keys[a], keys[b]);
  });
  return order;
}

std::vector<Value> pick(const std::vector<Value>& items, const std::vector<size_t>& order) {
  std::vector<Value> result;
  result.reserve(items.size());
  for (const size_t index : order) result.push_back(items[index]);
  return result;
}

template <typename KeyOf>
std::vector<Value> keys_of(Runtime& rt, const std::vector<Value>& items, const KeyOf& key_of) {
  std::vector<Value> keys;
  keys.reserve(items.size());
  for (const Value& item : items) {
    rt.budget().allocate(sizeof(Value));
    keys.push_back(key_of(item));
  }
  return keys;
}

Value filter_sort(Runtime& rt, const Value& input, const Bound& args) {
  const SortKey key(rt, args.get(2), args.boolean(1, false));
  const std::vector<Value> items = elements(rt, input);
  const auto keys = keys_of(rt, items, [&](const Value& item) { return key.of(rt, item); });
  return rt.list(pick(items, sorted_order(rt, keys, args.boolean(0, false))));
}

Value filter_dict_sort(Runtime& rt, const Value& input, const Bound& args) {
  const std::string by = args.text(1, "key");
  if (by != "key" && by != "value") raise("dictsort sorts by 'key' or 'value'");
  if (input.is(Kind::undefined)) raise_undefined(input);
  if (!input.is(Kind::dict)) raise("dictsort needs a mapping, found {}", type_name(input));
  std::vector<Value> items;
  for (const auto& entry : input.as<DictObject>().entries()) {
    items.push_back(rt.tuple({entry.first, entry.second}));
  }
  const bool case_sensitive = args.boolean(0, false);
  const auto keys = keys_of(rt, items, [&](const Value& item) {
    const Value& part = item.items()[by == "key" ? 0 : 1];
    return case_sensitive ? part : ignore_case(rt, part);
  });
  return rt.list(pick(items, sorted_order(rt, keys, args.boolean(2, false))));
}

Value make_group(const Value& key, const Value& list) {
  const int depth = 1 + std::max(value_depth(key), value_depth(list));
  const uint64_t weight = std::min(1 + value_weight(key) + value_weight(list), uint64_t{1} << 60);
  return Value::object<ListObject>(
      Kind::tuple, std::make_shared<ListObject>(ListObject{{key, list}, depth, weight, true}));
}

Value filter_group_by(Runtime& rt, const Value& input, const Bound& args) {
  const bool case_sensitive = args.boolean(2, false);
  const AttributePath path(rt, args[0], args.get(1));
  const std::vector<Value> items = elements(rt, input);
  const auto keys = keys_of(rt, items, [&](const Value& item) {
    const Value key = path.get(rt, item);
    return case_sensitive ? key : ignore_case(rt, key);
  });
  const std::vector<size_t> order = sorted_order(rt, keys, false);
  std::vector<Value> groups;
  for (size_t begin = 0; begin < order.size();) {
    size_t end = begin + 1;
    while (end < order.size() && equal(keys[order[begin]], keys[order[end]])) ++end;
    std::vector<Value> members;
    for (size_t i = begin; i < end; ++i) members.push_back(items[order[i]]);
    const Value key = path.get(rt, members[0]);
    groups.push_back(make_group(key, rt.list(std::move(members))));
    begin = end;
  }
  return rt.list(std::move(groups));
}

template <bool Largest>
Value filter_extreme(Runtime& rt, const Value& input, const Bound& args) {
  const bool case_sensitive = args.boolean(0, false);
  const AttributePath path(rt, args.get(1));
  const std::vector<Value> items = elements(rt, input);
  if (items.empty()) return Value::undefined("No aggregated item, sequence was empty.");
  const auto keys = keys_of(rt, items, [&](const Value& item) {
    const Value key = path.get(rt, item);
    return case_sensitive ? key : ignore_case(rt, key);
  });
  charge_sorting(rt, keys);
  size_t best = 0;
  for (size_t i = 1; i < items.size(); ++i) {
    if (Largest ? less(keys[best], keys[i]) : less(keys[i], keys[best])) best = i;
  }
  return items[best];
}

Value filter_sum(Runtime& rt, const Value& input, const Bound& args) {
  const AttributePath path(rt, args.get(0));
  Value total = args.has(1) ? args[1] : Value::integer(0);
  if (total.is_string()) raise("sum() cannot add strings");
  const auto iterator = iterate(rt, input);
  Value item;
  while (iterator->next(&item)) {
    rt.budget().step();
    total = arithmetic(rt, Operator::add, total, path.get(rt, item));
  }
  return total;
}

Value filter_reverse(Runtime& rt, const Value& input, const Bound&) {
  if (input.is_string()) {
    return get_slice(rt, input, {Value::none(), Value::none(), Value::integer(-1)});
  }
  std::vector<Value> items = elements(rt, input);
  std::reverse(items.begin(), items.end());
  const Value list = rt.list(std::move(items));
  // Values with a length are reversed by an iterator, others by way of a list.
  return length_of(input) < 0 ? list : rt.iterator(iterate(rt, list));
}

constexpr FilterEntry kSequenceFilters[] = {
    {"attr", "name!", filter_attribute},
    {"count", "", filter_length},
    {"d", "default_value boolean", filter_default},
    {"default", "default_value boolean", filter_default},
    {"dictsort", "case_sensitive by reverse", filter_dict_sort},
    {"first", "", filter_first},
    {"groupby", "attribute! default case_sensitive", filter_group_by},
    {"join", "d attribute", filter_join},
    {"last", "", filter_last},
    {"length", "", filter_length},
    {"list", "", filter_list},
    {"max", "case_sensitive attribute", filter_extreme<true>},
    {"min", "case_sensitive attribute", filter_extreme<false>},
    {"reverse", "", filter_reverse},
    {"sort", "reverse case_sensitive attribute", filter_sort},
    {"sum", "attribute start", filter_sum},
};

}  // namespace

std::span<const FilterEntry> sequence_filters() { return kSequenceFilters; }

}  // namespace klotski::jinja
