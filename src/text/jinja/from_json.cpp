#include "text/jinja/from_json.h"

#include "text/utf8.h"

namespace klotski::jinja {
namespace {

Value integer_from_json(const OrderedJson& json) {
  if (json.is_number_unsigned() && json.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) {
    raise("an integer does not fit 64 bits");
  }
  return Value::integer(json.get<int64_t>());
}

// JSON that was parsed is valid UTF-8; strings that a caller put together may not be.
Value text_from_json(Runtime& runtime, const std::string& text) {
  if (is_valid_utf8(text)) return runtime.text(text);
  std::string repaired;
  append_lossy_utf8(repaired, text);
  return runtime.text(std::move(repaired));
}

}  // namespace

Value value_from_json(Runtime& runtime, const OrderedJson& json) {
  const DepthGuard guard(runtime.depth(), kMaxValueDepth);
  if (json.is_null()) return Value::none();
  if (json.is_boolean()) return Value::boolean(json.get<bool>());
  if (json.is_number_integer()) return integer_from_json(json);
  if (json.is_number_float()) return Value::real(json.get<double>());
  if (json.is_string()) return text_from_json(runtime, json.get_ref<const std::string&>());
  if (json.is_array()) {
    std::vector<Value> items;
    items.reserve(json.size());
    for (const OrderedJson& item : json) items.push_back(value_from_json(runtime, item));
    return runtime.list(std::move(items));
  }
  if (!json.is_object()) raise("a variable is of a kind that templates do not know");
  DictObject dict;
  for (const auto& [key, value] : json.items()) {
    dict.set(text_from_json(runtime, key), value_from_json(runtime, value));
  }
  return runtime.dict(std::move(dict));
}

}  // namespace klotski::jinja
