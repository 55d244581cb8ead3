#include "text/jinja/filters.h"

#include <algorithm>
#include <unordered_map>

#include "base/error.h"
#include "base/numbers.h"
#include "text/jinja/operators.h"
#include "text/jinja/unicode.h"

namespace klotski::jinja {
namespace {

using Table = std::unordered_map<std::string_view, const FilterEntry*>;

Table make_table() {
  Table table;
  for (const auto filters :
       {text_filters(), markup_filters(), number_filters(), sequence_filters(), lazy_filters()}) {
    for (const FilterEntry& entry : filters) table.emplace(entry.name, &entry);
  }
  return table;
}

}  // namespace

const FilterEntry* find_filter(std::string_view name) {
  static const Table kTable = make_table();
  const auto found = kTable.find(name);
  return found == kTable.end() ? nullptr : found->second;
}

Value apply_filter(Runtime& runtime, const FilterEntry& filter, const Value& input,
                   Arguments arguments) {
  runtime.budget().step();
  if (filter.raw != nullptr) return filter.raw(runtime, input, arguments);
  return filter.function(runtime, input,
                         BoundArguments(filter.name, filter.signature, std::move(arguments)));
}

AttributePath::AttributePath(Runtime& runtime, const Value& path, Value fallback)
    : fallback_(std::move(fallback)) {
  if (path.is(Kind::none)) return;
  if (!path.is_string()) {
    parts_.push_back(path);
    return;
  }
  std::string_view rest = path.text();
  while (true) {
    const size_t dot = std::min(rest.find('.'), rest.size());
    const std::string_view part = rest.substr(0, dot);
    const bool digits = !part.empty() && std::all_of(part.begin(), part.end(),
                                                     [](char c) { return c >= '0' && c <= '9'; });
    const auto index = digits ? parse_int(part) : std::nullopt;
    parts_.push_back(index ? Value::integer(*index) : runtime.text(std::string(part)));
    if (dot == rest.size()) return;
    rest.remove_prefix(dot + 1);
  }
}

Value AttributePath::get(Runtime& runtime, const Value& item) const {
  Value value = item;
  for (const Value& part : parts_) {
    value = get_item(runtime, value, part);
    const bool replace = !fallback_.is(Kind::missing) && !fallback_.is(Kind::none);
    if (replace && value.is(Kind::undefined)) value = fallback_;
  }
  return value;
}

Value ignore_case(Runtime& runtime, const Value& value) {
  return value.is_string() ? runtime.text(to_lower(value.text())) : value;
}

void charge_sorting(Runtime& runtime, const std::vector<Value>& keys) {
  uint64_t weight = 0;
  for (const Value& key : keys) weight = std::min(weight + value_weight(key), uint64_t{1} << 56);
  uint64_t rounds = 1;
  for (size_t n = keys.size(); n > 1; n /= 2) ++rounds;
  runtime.budget().step(weight * rounds);
}

}  // namespace klotski::jinja
