#pragma once

#include <string>
#include <utility>

#include "base/error.h"

namespace klotski {

// The HTTP statuses that refusals have.
enum class Status {
  bad_request = 400,
  unauthorized = 401,
  not_found = 404,
  method_not_allowed = 405,
  timeout = 408,
  too_large = 413,
  unsupported_media_type = 415,
  expectation_failed = 417,
  too_many_requests = 429,
  header_too_large = 431,
  internal = 500,
  unavailable = 503,
};

// A request that is refused or fails: becomes an HTTP status with OpenAI's error object.
class ApiError : public Error {
 public:
  // `param` is the field at fault and `code` OpenAI's word for the error; empty: there is none.
  ApiError(Status status, const std::string& message, std::string param = "", std::string code = "")
      : Error(ErrorKind::usage, message),
        status_(status),
        param_(std::move(param)),
        code_(std::move(code)) {}
  Status status() const { return status_; }
  const std::string& param() const { return param_; }
  const std::string& code() const { return code_; }

 private:
  Status status_;
  std::string param_;
  std::string code_;
};

}  // namespace klotski
