#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace klotski {

// Whose result it is and how it is dated.
struct ResultHead {
  int64_t line = 0;                      // of the row; makes the ids of the result
  std::optional<std::string> custom_id;  // none where the row had none
};

struct Completion {
  bool chat = false;
  std::string model;
  int64_t created = 0;  // seconds since 1970
  std::string text;
  bool by_length = false;  // else by a stop token or string
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  std::vector<std::string> lossy{};  // what was given up of the model's exactness
};

// Rows of the output in OpenAI's batch format, each a line with its end.
std::string completion_line(const ResultHead& head, const Completion& completion);
// The row was refused: as the service answers with status 400.
std::string refusal_line(const ResultHead& head, const std::string& message,
                         const std::string& param);
// The row was fine and failed all the same.
std::string failure_line(const ResultHead& head, const std::string& message);

}  // namespace klotski
