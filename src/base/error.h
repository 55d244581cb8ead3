#pragma once

#include <fmt/format.h>

#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace klotski {

// Kinds of failure that a user can act on. Each has its own exit code.
enum class ErrorKind {
  internal,            // 1: our mistake, or the system failed in a way no flag can mend
  usage,               // 2: the command line or a request is wrong
  bad_model,           // 3: a model, tokenizer or template file is bad or not supported
  does_not_fit,        // 4: the plan needs more memory than the limits allow
  device_unavailable,  // 5: the device asked for is absent or cannot be used
  device_lost,         // 6: the device failed; this process cannot use it any more
};

int exit_code(ErrorKind kind);

// Ends the command or the request. The message is one line that names the thing, what was expected,
// what was found and, where there is something to do, what to do.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  ErrorKind kind() const { return kind_; }

 private:
  ErrorKind kind_;
};

template <typename... Args>
[[noreturn]] void fail(ErrorKind kind, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(kind, fmt::format(format, std::forward<Args>(args)...));
}

// Text from a file or a user, made safe for a one-line message: control characters and quotes are
// escaped, invalid UTF-8 becomes \xNN, a text longer than max_bytes is cut with an ellipsis.
std::string in_quotes(std::string_view text, size_t max_bytes = 80);
std::string path_in_quotes(const std::filesystem::path& path);

// A finished message made safe for a terminal and for one line: control characters and invalid
// UTF-8 are escaped, a message longer than max_bytes is cut with an ellipsis.
std::string one_line(std::string_view message, size_t max_bytes = 1000);

}  // namespace klotski
