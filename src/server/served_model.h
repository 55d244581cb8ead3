#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "server/openai_requests.h"
#include "session/opened_model.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"
#include "text/tokenizer_config.h"

namespace klotski {

// The model that a server answers with, as requests need to know it. Never changes.
struct ServedModel {
  std::string name;
  std::shared_ptr<const OpenedModel> model;
  Tokenizer tokenizer;
  TokenizerConfig config;
  std::optional<ChatTemplate> chat_template;  // none: chats are refused
  std::optional<ChatTemplate> tool_template;  // for conversations with tools
  bool writes_tool_calls = false;  // the template of tools asks for <tool_call> around calls
  SamplingOptions sampling;        // of a request that does not say
  int64_t max_tokens = 256;        // of a request that does not say
  std::vector<std::string> lossy;  // ways in which answers differ from the exact model's
  int64_t created = 0;             // seconds since 1970

  const ModelDescription& description() const { return model->description; }
};

// Reads the tokenizer and templates beside an opened model. Fields that are choices of a server
// keep their defaults.
ServedModel serve_model(std::shared_ptr<const OpenedModel> model, std::string name);

// One text to generate: a choice of a prompt.
struct PreparedChoice {
  Request request;
  std::vector<std::string> stop_strings;
  // Whether the text continues the prompt's: some decoders drop the space at the start of a text.
  bool continues_prompt = false;
  std::string echo;  // text to begin with
};

// The choices of a request in the order of their indices. Tokenises; throws ApiError for a prompt
// that does not fit the model. `seed` is used where the request has none of its own.
std::vector<PreparedChoice> prepare_choices(const GenerationCall& call, const ServedModel& served,
                                            uint64_t seed);

// Tokens of a conversation by the model's template, which is handed the tools.
std::vector<TokenId> chat_tokens(const ServedModel& served, const OrderedJson& messages,
                                 const OrderedJson& tools);

}  // namespace klotski
