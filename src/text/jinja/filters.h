#pragma once

#include <span>
#include <string_view>

#include "text/jinja/runtime.h"

namespace klotski::jinja {

using FilterFunction = Value (*)(Runtime&, const Value& input, const BoundArguments&);
using RawFilterFunction = Value (*)(Runtime&, const Value& input, const Arguments&);

struct FilterEntry {
  std::string_view name;
  std::string_view signature;  // signature for BoundArguments
  FilterFunction function;
  RawFilterFunction raw = nullptr;  // instead, where any arguments are taken
};

// Null where there is none of that name.
const FilterEntry* find_filter(std::string_view name);
Value apply_filter(Runtime& runtime, const FilterEntry& filter, const Value& input,
                   Arguments arguments);

// One table per file.
std::span<const FilterEntry> text_filters();
std::span<const FilterEntry> markup_filters();
std::span<const FilterEntry> number_filters();
std::span<const FilterEntry> sequence_filters();
std::span<const FilterEntry> lazy_filters();

// Reads an attribute by a dotted path, as the attribute= arguments of filters do; a number in the
// path is an index.
class AttributePath {
 public:
  // `path` None stands for the item itself.
  AttributePath(Runtime& runtime, const Value& path, Value fallback = Value());
  Value get(Runtime& runtime, const Value& item) const;

 private:
  std::vector<Value> parts_;
  Value fallback_;
};

// Lower case for strings; other values as they are.
Value ignore_case(Runtime& runtime, const Value& value);

// Steps for sorting `items` by `keys`.
void charge_sorting(Runtime& runtime, const std::vector<Value>& keys);

}  // namespace klotski::jinja
