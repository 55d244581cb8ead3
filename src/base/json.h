#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace klotski {

using Json = nlohmann::json;
// Keeps the order of keys, as chat templates must.
using OrderedJson = nlohmann::ordered_json;

inline constexpr int kMaxJsonDepth = 64;

struct JsonReading {
  int max_depth = kMaxJsonDepth;
  // Keys of the outermost object that are read; empty: all. The values of other keys are checked
  // for syntax, UTF-8 and depth, not for duplicate keys, and take no memory.
  std::vector<std::string_view> wanted{};
  // Bytes of memory that reading may take; none: what allowed_memory_left() says.
  std::optional<uint64_t> memory{};
  // Where not null, becomes the most bytes that reading held at once, the text not counted.
  uint64_t* bytes = nullptr;
};

// Strict reading of hostile text: UTF-8 only, no byte-order mark, no duplicate keys, no more than
// max_depth nested containers. Errors are of `kind` and begin with `what`, for instance a file
// name. A text that takes more memory than there is gives an error of kind does_not_fit with the
// bytes that it needs, which is found without taking them.
Json parse_json(std::string_view text, std::string_view what, ErrorKind kind = ErrorKind::bad_model,
                const JsonReading& reading = {});
OrderedJson parse_ordered_json(std::string_view text, std::string_view what,
                               ErrorKind kind = ErrorKind::bad_model,
                               const JsonReading& reading = {});

// Reads the fields of one JSON object with every value checked: an error names the file, the field,
// what was expected and what was found. A field that is null counts as absent.
class JsonFields {
 public:
  // Both must outlive the reader. `path` is the dotted path of the object inside the file.
  JsonFields(const Json& object, std::string what, std::string path = "");

  bool has(std::string_view key) const { return find(key) != nullptr; }
  const Json* find(std::string_view key) const;

  int64_t integer(std::string_view key, int64_t least, int64_t most) const;
  int64_t integer_or(std::string_view key, int64_t fallback, int64_t least, int64_t most) const;
  double number(std::string_view key, double least, double most) const;
  double number_or(std::string_view key, double fallback, double least, double most) const;
  bool boolean_or(std::string_view key, bool fallback) const;
  std::string string(std::string_view key) const;
  std::string string_or(std::string_view key, std::string_view fallback) const;
  // An array of integers / numbers within the bounds; absent gives nullopt.
  std::optional<std::vector<int64_t>> integers(std::string_view key, int64_t least,
                                               int64_t most) const;
  std::optional<std::vector<double>> numbers(std::string_view key, double least, double most) const;
  std::optional<std::vector<std::string>> strings(std::string_view key) const;
  std::optional<JsonFields> object(std::string_view key) const;

  // Throws: the field `key`, what was expected, what was found.
  [[noreturn]] void refuse(std::string_view key, std::string_view expected) const;

 private:
  const Json& require(std::string_view key, std::string_view expected) const;
  int64_t checked_integer(std::string_view key, const Json& value, int64_t least,
                          int64_t most) const;
  double checked_number(std::string_view key, const Json& value, double least, double most) const;

  const Json* object_;
  std::string what_;
  std::string path_;
};

}  // namespace klotski
