#include "server/job_objects.h"

#include <algorithm>
#include <ctime>

#include "base/random_bits.h"
#include "server/api_error.h"
#include "server/request_fields.h"

namespace klotski {

namespace {

bool has_text(const OrderedJson& object, const char* key) {
  return object.value(key, OrderedJson()).is_string();
}

// Metadata as OpenAI bounds them: up to 16 short texts.
OrderedJson checked_metadata(const OrderedJson* metadata) {
  if (!metadata) return nullptr;
  bool fits = metadata->is_object() && metadata->size() <= 16;
  for (const auto& [key, value] : metadata->items()) {
    fits = fits && key.size() <= 64 && value.is_string() &&
           value.get_ref<const std::string&>().size() <= 512;
  }
  if (!fits) RequestFields::refuse("metadata", "an object of up to 16 short texts");
  return *metadata;
}

}  // namespace

std::string random_job_id(std::string_view prefix) {
  return fmt::format("{}{:016x}{:08x}", prefix, random_bits(), random_bits() >> 32);
}

int64_t seconds_now() { return static_cast<int64_t>(std::time(nullptr)); }

OrderedJson new_file_object(const std::string& id, const std::string& name,
                            const std::string& purpose, uint64_t bytes) {
  return {{"id", id},
          {"object", "file"},
          {"bytes", bytes},
          {"created_at", seconds_now()},
          {"filename", name},
          {"purpose", purpose},
          {"status", "processed"}};
}

bool is_over(const OrderedJson& batch) {
  const OrderedJson& status = batch["status"];
  return status == "completed" || status == "failed" || status == "cancelled";
}

bool is_stored_object(const OrderedJson& object, const std::string& id) {
  return object.is_object() && object.value("id", OrderedJson()) == id &&
         object.value("created_at", OrderedJson()).is_number_integer();
}

bool is_stored_batch(const OrderedJson& object) {
  const OrderedJson hidden = object.value(kHiddenFields, OrderedJson());
  return hidden.is_object() && hidden.value("number", OrderedJson()).is_number_integer() &&
         has_text(hidden, "output") && has_text(hidden, "errors") && has_text(object, "status") &&
         has_text(object, "endpoint") && has_text(object, "input_file_id") &&
         object.value("request_counts", OrderedJson()).is_object();
}

OrderedJson shown_to_clients(const OrderedJson& object) {
  OrderedJson visible = object;
  visible.erase(kHiddenFields);
  return visible;
}

OrderedJson new_batch(std::string_view body) {
  OrderedJson document;
  try {
    document = parse_ordered_json(body, "body", ErrorKind::usage);
  } catch (const Error& error) {
    throw ApiError(Status::bad_request, error.what());
  }
  if (!document.is_object()) throw ApiError(Status::bad_request, "expected a JSON object");
  const RequestFields fields(document);
  const std::string endpoint = fields.text("endpoint").value_or("");
  if (endpoint != "/v1/chat/completions" && endpoint != "/v1/completions") {
    RequestFields::refuse("endpoint", "/v1/chat/completions or /v1/completions");
  }
  const std::string window = fields.text("completion_window").value_or("24h");
  const std::string input = fields.text("input_file_id").value_or("");
  const OrderedJson metadata = checked_metadata(fields.find("metadata"));
  OrderedJson batch = {{"id", random_job_id("batch_")}, {"object", "batch"},
                       {"endpoint", endpoint},          {"errors", nullptr},
                       {"input_file_id", input},        {"completion_window", window.substr(0, 64)},
                       {"status", "validating"},        {"output_file_id", nullptr},
                       {"error_file_id", nullptr},      {"created_at", seconds_now()}};
  for (const char* name : {"in_progress_at", "expires_at", "finalizing_at", "completed_at",
                           "failed_at", "expired_at", "cancelling_at", "cancelled_at"}) {
    batch[name] = nullptr;
  }
  batch["request_counts"] = {{"total", 0}, {"completed", 0}, {"failed", 0}};
  batch["metadata"] = metadata;
  return batch;
}

}  // namespace klotski
