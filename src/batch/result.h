#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"

namespace klotski {

// The row of a result and its date.
struct ResultHead {
  int64_t line = 0;                      // line of the row; makes the ids of the result
  std::optional<std::string> custom_id;  // none where the row had none
};

struct Completion {
  bool chat = false;
  std::string model;
  int64_t created = 0;  // seconds since 1970
  std::string text;
  bool by_length = false;  // false: by a stop token or string
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  std::vector<std::string> lossy{};  // ways in which the model was not computed exactly
};

// Rows of the output in OpenAI's batch format, each a line with its end.
std::string completion_line(const ResultHead& head, const Completion& completion);
// A row that was answered with this status and body.
std::string response_line(const ResultHead& head, int status, OrderedJson body);
// The result of a refused row, as the service answers with status 400.
std::string refusal_line(const ResultHead& head, const std::string& message,
                         const std::string& param);
// The result of a row that was fine and still failed.
std::string failure_line(const ResultHead& head, const std::string& message);

}  // namespace klotski
