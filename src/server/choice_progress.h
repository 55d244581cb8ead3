#pragma once

#include <optional>

#include "server/generation_stream.h"
#include "server/openai_responses.h"
#include "server/tool_calls.h"

namespace klotski {

// A choice of a response on its way to the client: updates of the engine become parts of a
// response, in which calls of tools are told from text.
class ChoiceProgress {
 public:
  explicit ChoiceProgress(bool reads_tool_calls) {
    if (reads_tool_calls) calls_.emplace();
  }

  ResponseChoice next(ChoiceUpdate update);

 private:
  std::optional<ToolCallReader> calls_;  // none: text is handed on as it is
  size_t text_bytes_ = 0;                // handed on so far
  size_t call_count_ = 0;
};

// Whether a stream needs an event for this part.
bool says_something(const ResponseChoice& choice);

// Puts a later part of a choice behind the earlier ones.
void append(ResponseChoice& whole, ResponseChoice more);

}  // namespace klotski
