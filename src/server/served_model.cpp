#include "server/served_model.h"

#include <ctime>

#include "base/bytes.h"
#include "engine/generation_defaults.h"
#include "engine/prompt.h"
#include "session/model_tokenizer.h"

namespace klotski {

namespace {

// Most bytes that a token stands for: a text that cannot fit is refused before it is tokenised.
constexpr uint64_t kMostBytesOfAToken = 256;

void refuse_hopeless_text(uint64_t bytes, const ServedModel& served, const char* field) {
  const auto positions = static_cast<uint64_t>(served.description().max_positions);
  if (bytes / kMostBytesOfAToken <= positions) return;
  throw ApiError(Status::bad_request,
                 fmt::format("{}: {} of text are more than the model's {} positions can hold",
                             field, format_bytes(bytes), positions),
                 field, "context_length_exceeded");
}

void check_prompt(const std::vector<TokenId>& prompt, const ServedModel& served,
                  const char* field) {
  const ModelDescription& model = served.description();
  if (prompt.empty()) {
    throw ApiError(Status::bad_request,
                   fmt::format("{}: expected at least one token, found none", field), field);
  }
  if (std::ssize(prompt) >= model.max_positions) {
    throw ApiError(Status::bad_request,
                   fmt::format("{}: expected fewer tokens than the model's {} positions, found {}",
                               field, model.max_positions, prompt.size()),
                   field, "context_length_exceeded");
  }
  for (const TokenId token : prompt) {
    if (token < model.vocabulary) continue;
    throw ApiError(Status::bad_request,
                   fmt::format("{}: token id {} is outside the vocabulary of {}", field, token,
                               model.vocabulary),
                   field);
  }
}

std::vector<TokenId> completion_tokens(const ServedModel& served, const PromptInput& prompt) {
  if (const auto* tokens = std::get_if<std::vector<TokenId>>(&prompt)) return *tokens;
  const auto& text = std::get<std::string>(prompt);
  refuse_hopeless_text(text.size(), served, "prompt");
  return encode_text(served.tokenizer, served.config, served.description(), text, false);
}

std::string echo_of(const ServedModel& served, const PromptInput& prompt) {
  if (const auto* text = std::get_if<std::string>(&prompt)) return *text;
  return served.tokenizer.decode(std::get<std::vector<TokenId>>(prompt));
}

void check_logit_bias(const SamplingOptions& sampling, const ServedModel& served) {
  for (const auto& [token, bias] : sampling.logit_bias) {
    if (token < served.description().vocabulary) continue;
    throw ApiError(Status::bad_request,
                   fmt::format("logit_bias: token id {} is outside the vocabulary of {}", token,
                               served.description().vocabulary),
                   "logit_bias");
  }
}

// The parts of a prepared choice that are equal for all choices of a request.
PreparedChoice common_choice(const GenerationCall& call, const ServedModel& served, uint64_t seed) {
  check_logit_bias(call.sampling, served);
  PreparedChoice choice;
  choice.request.sampling = call.sampling;
  if (!call.has_seed) choice.request.sampling.seed = seed;
  choice.request.max_tokens = call.max_tokens.value_or(served.max_tokens);
  if (!call.ignore_end) choice.request.stop_tokens = served.description().end_tokens;
  choice.request.logprobs = call.logprobs;
  choice.stop_strings = call.stop_strings;
  choice.continues_prompt = call.endpoint == Endpoint::completions && !served.description().encoder;
  return choice;
}

// Choices of one prompt: alike but for their seeds, of which the first is the request's own.
void add_choices(std::vector<PreparedChoice>& choices, const PreparedChoice& first, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    choices.push_back(first);
    choices.back().request.sampling.seed += static_cast<uint64_t>(i);
  }
}

}  // namespace

ServedModel serve_model(std::shared_ptr<const OpenedModel> model, std::string name) {
  Tokenizer tokenizer = load_tokenizer(model->folder);
  ServedModel served{.name = std::move(name),
                     .model = model,
                     .tokenizer = std::move(tokenizer),
                     .config = load_tokenizer_config(model->folder),
                     .chat_template = {},
                     .tool_template = {},
                     .sampling = suggested_sampling(model->folder),
                     .lossy = {},
                     .created = static_cast<int64_t>(std::time(nullptr))};
  const auto& chat = served.config.chat_template;
  if (chat) served.chat_template = ChatTemplate::parse(*chat, "chat template");
  const auto& tools = served.config.tool_use_template ? served.config.tool_use_template : chat;
  if (tools) {
    served.tool_template = ChatTemplate::parse(*tools, "chat template");
    served.writes_tool_calls = tools->find("<tool_call>") != std::string::npos;
  }
  return served;
}

std::vector<TokenId> chat_tokens(const ServedModel& served, const OrderedJson& messages,
                                 const OrderedJson& tools) {
  const auto& chosen = tools.is_null() ? served.chat_template : served.tool_template;
  if (!chosen) {
    throw ApiError(Status::bad_request,
                   "messages: the model has no chat template; use /v1/completions", "messages");
  }
  uint64_t bytes = 0;
  for (const OrderedJson& message : messages) {
    bytes += message["content"].get_ref<const std::string&>().size();
  }
  refuse_hopeless_text(bytes, served, "messages");
  OrderedJson context = chat_context(served.config, messages);
  context["tools"] = tools;
  try {
    return encode_chat(served.tokenizer, *chosen, std::move(context));
  } catch (const Error& error) {  // roles in an order that the template does not take
    throw ApiError(Status::bad_request, fmt::format("messages: {}", error.what()), "messages");
  }
}

std::vector<PreparedChoice> prepare_choices(const GenerationCall& call, const ServedModel& served,
                                            uint64_t seed) {
  PreparedChoice choice = common_choice(call, served, seed);
  std::vector<PreparedChoice> choices;
  if (call.endpoint == Endpoint::chat) {
    choice.request.prompt = chat_tokens(served, call.messages, call.tools);
    check_prompt(choice.request.prompt, served, "messages");
    add_choices(choices, choice, call.choices);
    return choices;
  }
  for (const PromptInput& prompt : call.prompts) {
    choice.request.prompt = completion_tokens(served, prompt);
    check_prompt(choice.request.prompt, served, "prompt");
    if (call.echo) choice.echo = echo_of(served, prompt);
    add_choices(choices, choice, call.choices);
  }
  return choices;
}

}  // namespace klotski
