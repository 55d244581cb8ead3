#pragma once

// The objects of files and batches in OpenAI's form, as a server stores and shows them.

#include <cstdint>
#include <string>
#include <string_view>

#include "base/json.h"

namespace klotski {

inline constexpr const char* kHiddenFields = "klotski";  // of a batch: clients do not see them

std::string random_job_id(std::string_view prefix);
int64_t seconds_now();  // since 1970

OrderedJson new_file_object(const std::string& id, const std::string& name,
                            const std::string& purpose, uint64_t bytes);
// A batch as the body of a request asks for it, without its hidden fields. Throws ApiError, which
// names the field at fault.
OrderedJson new_batch(std::string_view body);

// Whether a stored document is the object of this id, and whether such an object is a batch.
bool is_stored_object(const OrderedJson& object, const std::string& id);
bool is_stored_batch(const OrderedJson& object);

// Whether the batch has come to an end, good or bad.
bool is_over(const OrderedJson& batch);
OrderedJson shown_to_clients(const OrderedJson& object);

}  // namespace klotski
