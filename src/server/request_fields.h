#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "server/api_error.h"

namespace klotski {

// Reads fields of a request's JSON object; null counts as absent, as it does in OpenAI's interface.
// Every function throws ApiError (400), which names the field, for a value it does not expect.
class RequestFields {
 public:
  explicit RequestFields(const OrderedJson& object) : object_(object) {}

  const OrderedJson* find(const std::string& key) const;
  std::optional<int64_t> integer(const std::string& key, int64_t least, int64_t most) const;
  // Leaves `result` as it is where the field is absent.
  void number(const std::string& key, double least, double most, double* result) const;
  bool boolean(const std::string& key, bool absent = false) const;
  std::optional<std::string> text(const std::string& key) const;

  [[noreturn]] static void refuse(const std::string& key, std::string_view expected);
  [[noreturn]] static void refuse_unsupported(const std::string& key, std::string_view reason = "");

 private:
  const OrderedJson& object_;
};

}  // namespace klotski
