#pragma once

// Bodies of responses in OpenAI's form, made of plain values.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "engine/draft_budget.h"
#include "server/api_error.h"
#include "server/generation_stream.h"
#include "server/openai_requests.h"
#include "server/tool_calls.h"
#include "text/tokenizer.h"

namespace klotski {

struct TokenUsage {
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  DraftCounts drafts{};  // among them, with speculative decoding
};

// Fields that all bodies of one response have.
struct ResponseHead {
  Endpoint endpoint = Endpoint::completions;
  std::string id;
  std::string model;
  int64_t created = 0;               // seconds since 1970
  std::vector<std::string> lossy{};  // ways in which the answer differs from the exact model's
};

// A choice of a response: all of it, or in a stream what is new.
struct ResponseChoice {
  size_t index = 0;
  std::string text;
  size_t first_call = 0;  // calls of this choice before `calls`
  std::vector<ToolCall> calls{};
  std::vector<TokenDetail> details{};
  size_t text_before = 0;  // bytes of the choice's text before `text`
  std::optional<FinishReason> finish{};
  bool called_tools = false;  // in this choice, here or before
};

// Writes texts: the values of Server-Sent Events and whole bodies.
class ResponseWriter {
 public:
  // The tokenizer must live longer.
  ResponseWriter(ResponseHead head, const Tokenizer& tokenizer, bool wants_logprobs)
      : head_(std::move(head)), tokenizer_(tokenizer), wants_logprobs_(wants_logprobs) {}

  // A whole response.
  std::string body(const std::vector<ResponseChoice>& choices, const TokenUsage& usage) const;

  // Events of a stream, each with its "data: " and the empty line behind it. begin_event() tells
  // the role of a chat's choice; empty for other endpoints.
  std::string begin_event(size_t choice) const;
  std::string event(const ResponseChoice& choice) const;
  std::string usage_event(const TokenUsage& usage) const;

 private:
  OrderedJson document(bool chunk, OrderedJson choices) const;
  OrderedJson logprobs(const ResponseChoice& choice) const;
  OrderedJson chat_logprobs(const ResponseChoice& choice) const;
  OrderedJson completion_logprobs(const ResponseChoice& choice) const;
  OrderedJson message(const ResponseChoice& choice, bool chunk) const;

  ResponseHead head_;
  const Tokenizer& tokenizer_;
  bool wants_logprobs_;
};

inline constexpr std::string_view kDoneEvent = "data: [DONE]\n\n";
std::string error_event(const ApiError& error);

OrderedJson error_body(const ApiError& error);
OrderedJson model_object(const std::string& name, int64_t created, int64_t positions);

// Text of JSON; a model may generate bytes that are no UTF-8.
std::string json_text(const OrderedJson& document);

}  // namespace klotski
