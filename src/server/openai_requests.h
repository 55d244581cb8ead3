#pragma once

// Bodies of requests in OpenAI's form, read without trust into plain values. Nothing here knows the
// model; every function throws ApiError for a body that is wrong or asks for what is not supported.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "base/json.h"
#include "engine/sampling.h"
#include "server/api_error.h"

namespace klotski {

inline constexpr size_t kMaxStopStrings = 4;
inline constexpr size_t kMaxStopBytes = 4096;  // of one stop string
inline constexpr int64_t kMaxLogprobs = 20;
inline constexpr int64_t kMaxChoices = 128;  // of all prompts of a request together

enum class Endpoint { chat, completions };

using PromptInput = std::variant<std::string, std::vector<TokenId>>;

// A request for text: fields of a body after all checks that need no model.
struct GenerationCall {
  Endpoint endpoint = Endpoint::completions;
  std::optional<std::string> model;
  std::vector<PromptInput> prompts;  // of /v1/completions, at least one
  OrderedJson messages;              // of /v1/chat/completions, contents as one text each
  OrderedJson tools;                 // handed to the chat template; null: none
  SamplingOptions sampling;          // the given defaults with the body's changes
  bool has_seed = false;             // whether the body says one
  int64_t choices = 1;               // for each prompt ("n")
  std::optional<int64_t> max_tokens;
  std::vector<std::string> stop_strings;
  std::optional<int64_t> logprobs;  // alternatives to give beside each token's probability
  bool ignore_end = false;          // the model's end tokens do not end the text
  bool stream = false;
  bool include_usage = false;  // a last streamed chunk says the tokens used
  bool echo = false;           // the text begins with the prompt
};

GenerationCall parse_generation(std::string_view body, Endpoint endpoint,
                                const SamplingOptions& defaults);

// The body of /tokenize: a text, or messages for the chat template.
struct TokenizeCall {
  std::optional<std::string> text;
  OrderedJson messages;
  bool add_special = true;  // tokens that the tokenizer puts around a plain text
};
TokenizeCall parse_tokenize(std::string_view body);

// The token ids in the body of /detokenize.
std::vector<TokenId> parse_detokenize(std::string_view body);

}  // namespace klotski
