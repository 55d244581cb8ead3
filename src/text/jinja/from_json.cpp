#include "text/jinja/from_json.h"

namespace klotski::jinja {
namespace {

Value integer_from_json(const OrderedJson& json) {
  if (json.is_number_unsigned() && json.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) {
    raise("an integer does not fit 64 bits");
  }
  return Value::integer(json.get<int64_t>());
}

}  // namespace

Value value_from_json(Runtime& runtime, const OrderedJson& json) {
  const DepthGuard guard(runtime.depth(), kMaxValueDepth);
  if (json.is_null()) return Value::none();
  if (json.is_boolean()) return Value::boolean(json.get<bool>());
  if (json.is_number_integer()) return integer_from_json(json);
  if (json.is_number_float()) return Value::real(json.get<double>());
  if (json.is_string()) return runtime.text(json.get_ref<const std::string&>());
  if (json.is_array()) {
    std::vector<Value> items;
    items.reserve(json.size());
    for (const OrderedJson& item : json) items.push_back(value_from_json(runtime, item));
    return runtime.list(std::move(items));
  }
  if (!json.is_object()) raise("a variable is of a kind that templates do not know");
  DictObject dict;
  for (const auto& [key, value] : json.items()) {
    dict.set(runtime.text(key), value_from_json(runtime, value));
  }
  return runtime.dict(std::move(dict));
}

}  // namespace klotski::jinja
