#include "server/request_fields.h"

namespace klotski {

const OrderedJson* RequestFields::find(const std::string& key) const {
  const auto found = object_.find(key);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

std::optional<int64_t> RequestFields::integer(const std::string& key, int64_t least,
                                              int64_t most) const {
  const OrderedJson* value = find(key);
  if (!value) return std::nullopt;
  const bool fits = value->is_number_integer() &&
                    (!value->is_number_unsigned() || value->get<uint64_t>() <= INT64_MAX) &&
                    value->get<int64_t>() >= least && value->get<int64_t>() <= most;
  if (!fits) refuse(key, fmt::format("an integer from {} to {}", least, most));
  return value->get<int64_t>();
}

void RequestFields::number(const std::string& key, double least, double most,
                           double* result) const {
  const OrderedJson* value = find(key);
  if (!value) return;
  const bool fits =
      value->is_number() && value->get<double>() >= least && value->get<double>() <= most;
  if (!fits) refuse(key, fmt::format("a number from {} to {}", least, most));
  *result = value->get<double>();
}

bool RequestFields::boolean(const std::string& key, bool absent) const {
  const OrderedJson* value = find(key);
  if (!value) return absent;
  if (!value->is_boolean()) refuse(key, "true or false");
  return value->get<bool>();
}

std::optional<std::string> RequestFields::text(const std::string& key) const {
  const OrderedJson* value = find(key);
  if (!value) return std::nullopt;
  if (!value->is_string()) refuse(key, "a text");
  return value->get<std::string>();
}

void RequestFields::refuse(const std::string& key, std::string_view expected) {
  throw ApiError(Status::bad_request, fmt::format("{}: expected {}", key, expected), key,
                 "invalid_value");
}

void RequestFields::refuse_unsupported(const std::string& key, std::string_view reason) {
  throw ApiError(Status::bad_request,
                 reason.empty() ? fmt::format("{}: is not supported", key)
                                : fmt::format("{}: {}", key, reason),
                 key, "unsupported_parameter");
}

}  // namespace klotski
