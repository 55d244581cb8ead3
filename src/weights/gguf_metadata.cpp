#include "weights/gguf_metadata.h"

#include <utility>

#include "base/error.h"
#include "weights/gguf.h"

namespace klotski {

namespace {

// Types of values, numbered as in files.
enum class ValueType : uint32_t {
  u8,
  i8,
  u16,
  i16,
  u32,
  i32,
  f32,
  boolean,
  text,
  array,
  u64,
  i64,
  f64
};
constexpr auto kValueTypes = static_cast<uint32_t>(ValueType::f64) + 1;

ValueType read_type(GgufCursor& cursor, std::string_view thing) {
  const auto type = cursor.number<uint32_t>(thing);
  if (type >= kValueTypes) {
    fail(ErrorKind::bad_model, "{}: {}: expected a type of value from 0 to {}, found {}",
         cursor.what(), thing, kValueTypes - 1, type);
  }
  return static_cast<ValueType>(type);
}

uint64_t least_bytes(ValueType type) {
  switch (type) {
    case ValueType::u8:
    case ValueType::i8:
    case ValueType::boolean:
      return 1;
    case ValueType::u16:
    case ValueType::i16:
      return 2;
    case ValueType::u32:
    case ValueType::i32:
    case ValueType::f32:
      return 4;
    default:
      return 8;
  }
}

bool read_boolean(GgufCursor& cursor, std::string_view thing) {
  const auto value = cursor.number<uint8_t>(thing);
  if (value > 1) {
    fail(ErrorKind::bad_model, "{}: {}: expected a truth value of 0 or 1, found {}", cursor.what(),
         thing, value);
  }
  return value == 1;
}

// A value that is no array.
Json read_single(GgufCursor& cursor, ValueType type, std::string_view thing) {
  switch (type) {
    case ValueType::u8:
      return cursor.number<uint8_t>(thing);
    case ValueType::i8:
      return cursor.number<int8_t>(thing);
    case ValueType::u16:
      return cursor.number<uint16_t>(thing);
    case ValueType::i16:
      return cursor.number<int16_t>(thing);
    case ValueType::u32:
      return cursor.number<uint32_t>(thing);
    case ValueType::i32:
      return cursor.number<int32_t>(thing);
    case ValueType::f32:
      return cursor.number<float>(thing);
    case ValueType::boolean:
      return read_boolean(cursor, thing);
    case ValueType::text:
      return cursor.text(thing, kMaxGgufHeaderBytes);
    case ValueType::u64:
      return cursor.number<uint64_t>(thing);
    case ValueType::i64:
      return cursor.number<int64_t>(thing);
    case ValueType::f64:
      return cursor.number<double>(thing);
    case ValueType::array:
      break;
  }
  fail(ErrorKind::bad_model, "{}: {}: expected an array of numbers or texts, found one of arrays",
       cursor.what(), thing);
}

Json read_array(GgufCursor& cursor, std::string_view thing, uint64_t& elements) {
  const ValueType type = read_type(cursor, thing);
  const uint64_t count = cursor.count(thing, least_bytes(type), UINT64_MAX);
  if (count > kMaxGgufElements - elements) {
    fail(ErrorKind::bad_model,
         "{}: {}: expected at most {} elements in all arrays together, found {} in one",
         cursor.what(), thing, kMaxGgufElements, count);
  }
  elements += count;
  Json array = Json::array();
  for (uint64_t i = 0; i < count; ++i) array.push_back(read_single(cursor, type, thing));
  return array;
}

}  // namespace

Json read_gguf_metadata(GgufCursor& cursor, uint64_t count) {
  Json metadata = Json::object();
  uint64_t elements = 0;
  for (uint64_t i = 0; i < count; ++i) {
    std::string key = cursor.text(fmt::format("key {} of the metadata", i), kMaxGgufKeyBytes);
    const std::string thing = fmt::format("metadata {}", in_quotes(key));
    if (metadata.contains(key)) {
      fail(ErrorKind::bad_model, "{}: {}: expected it once, found it twice", cursor.what(), thing);
    }
    const ValueType type = read_type(cursor, thing);
    Json value = type == ValueType::array ? read_array(cursor, thing, elements)
                                          : read_single(cursor, type, thing);
    metadata.emplace(std::move(key), std::move(value));
  }
  return metadata;
}

}  // namespace klotski
