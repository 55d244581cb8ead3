#include "server/openai_responses.h"

namespace klotski {

namespace {

std::string event_of(const OrderedJson& document) {
  return "data: " + json_text(document) + "\n\n";
}

OrderedJson usage_object(const TokenUsage& usage) {
  OrderedJson object = {{"prompt_tokens", usage.prompt_tokens},
                        {"completion_tokens", usage.completion_tokens},
                        {"total_tokens", usage.prompt_tokens + usage.completion_tokens}};
  if (usage.drafts.drafted > 0) {
    object["completion_tokens_details"] = {
        {"accepted_prediction_tokens", usage.drafts.accepted},
        {"rejected_prediction_tokens", usage.drafts.drafted - usage.drafts.accepted}};
  }
  return object;
}

OrderedJson finish_reason(const ResponseChoice& choice) {
  if (!choice.finish) return nullptr;
  if (choice.called_tools) return "tool_calls";
  return *choice.finish == FinishReason::length ? "length" : "stop";
}

OrderedJson bytes_of(const std::string& text) {
  OrderedJson bytes = OrderedJson::array();
  for (const char c : text) bytes.push_back(static_cast<unsigned char>(c));
  return bytes;
}

OrderedJson tool_calls(const ResponseChoice& choice, const std::string& id, bool chunk) {
  OrderedJson calls = OrderedJson::array();
  for (size_t i = 0; i < choice.calls.size(); ++i) {
    const ToolCall& call = choice.calls[i];
    const size_t number = choice.first_call + i;
    OrderedJson entry;
    if (chunk) entry["index"] = number;
    entry["id"] = fmt::format("call_{}_{}_{}", id, choice.index, number);
    entry["type"] = "function";
    entry["function"] = {{"name", call.name}, {"arguments", call.arguments}};
    calls.push_back(std::move(entry));
  }
  return calls;
}

std::string error_type(Status status) {
  switch (status) {
    case Status::unauthorized:
      return "authentication_error";
    case Status::too_many_requests:
      return "rate_limit_error";
    case Status::timeout:
      return "timeout_error";
    case Status::internal:
    case Status::unavailable:
      return "server_error";
    default:
      return "invalid_request_error";
  }
}

}  // namespace

std::string json_text(const OrderedJson& document) {
  return document.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

OrderedJson error_body(const ApiError& error) {
  const auto or_null = [](const std::string& text) {
    return text.empty() ? OrderedJson(nullptr) : OrderedJson(text);
  };
  return {{"error",
           {{"message", one_line(error.what())},
            {"type", error_type(error.status())},
            {"param", or_null(error.param())},
            {"code", or_null(error.code())}}}};
}

std::string error_event(const ApiError& error) { return event_of(error_body(error)); }

OrderedJson model_object(const std::string& name, int64_t created, int64_t positions) {
  return {{"id", name},
          {"object", "model"},
          {"created", created},
          {"owned_by", "klotski"},
          {"max_model_len", positions}};
}

OrderedJson ResponseWriter::document(bool chunk, OrderedJson choices) const {
  const bool chat = head_.endpoint == Endpoint::chat;
  const char* const object =
      !chat ? "text_completion" : (chunk ? "chat.completion.chunk" : "chat.completion");
  OrderedJson body = {{"id", head_.id},
                      {"object", object},
                      {"created", head_.created},
                      {"model", head_.model},
                      {"choices", std::move(choices)}};
  if (!head_.lossy.empty()) body["klotski"] = {{"lossy", head_.lossy}};
  return body;
}

OrderedJson ResponseWriter::chat_logprobs(const ResponseChoice& choice) const {
  const auto entry = [&](TokenId token, double logprob) -> OrderedJson {
    const std::string text = tokenizer_.decode(std::span(&token, 1));
    return {{"token", text}, {"logprob", logprob}, {"bytes", bytes_of(text)}};
  };
  OrderedJson content = OrderedJson::array();
  for (const TokenDetail& detail : choice.details) {
    OrderedJson& token = content.emplace_back(entry(detail.token, detail.logprobs.chosen));
    token["top_logprobs"] = OrderedJson::array();
    for (const TokenLogprob& other : detail.logprobs.top) {
      token["top_logprobs"].push_back(entry(other.token, other.logprob));
    }
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

OrderedJson ResponseWriter::completion_logprobs(const ResponseChoice& choice) const {
  OrderedJson tokens = OrderedJson::array();
  OrderedJson chosen = OrderedJson::array();
  OrderedJson top = OrderedJson::array();
  OrderedJson offsets = OrderedJson::array();
  size_t offset = choice.text_before;
  for (const TokenDetail& detail : choice.details) {
    const std::string text = tokenizer_.decode(std::span(&detail.token, 1));
    OrderedJson alternatives = OrderedJson::object();
    for (const TokenLogprob& other : detail.logprobs.top) {
      alternatives[tokenizer_.decode(std::span(&other.token, 1))] = other.logprob;
    }
    tokens.push_back(text);
    chosen.push_back(detail.logprobs.chosen);
    top.push_back(std::move(alternatives));
    offsets.push_back(offset);
    offset += text.size();
  }
  return {{"tokens", std::move(tokens)},
          {"token_logprobs", std::move(chosen)},
          {"top_logprobs", std::move(top)},
          {"text_offset", std::move(offsets)}};
}

OrderedJson ResponseWriter::logprobs(const ResponseChoice& choice) const {
  if (!wants_logprobs_) return nullptr;
  return head_.endpoint == Endpoint::chat ? chat_logprobs(choice) : completion_logprobs(choice);
}

OrderedJson ResponseWriter::message(const ResponseChoice& choice, bool chunk) const {
  OrderedJson message = OrderedJson::object();
  if (!chunk) message["role"] = "assistant";
  if (!chunk || !choice.text.empty()) {
    message["content"] = !chunk && choice.text.empty() && !choice.calls.empty()
                             ? OrderedJson(nullptr)
                             : OrderedJson(choice.text);
  }
  if (!choice.calls.empty()) message["tool_calls"] = tool_calls(choice, head_.id, chunk);
  return message;
}

std::string ResponseWriter::body(const std::vector<ResponseChoice>& choices,
                                 const TokenUsage& usage) const {
  OrderedJson list = OrderedJson::array();
  for (const ResponseChoice& choice : choices) {
    OrderedJson& entry = list.emplace_back(OrderedJson{{"index", choice.index}});
    if (head_.endpoint == Endpoint::chat) {
      entry["message"] = message(choice, false);
    } else {
      entry["text"] = choice.text;
    }
    entry["logprobs"] = logprobs(choice);
    entry["finish_reason"] = finish_reason(choice);
  }
  OrderedJson whole = document(false, std::move(list));
  whole["usage"] = usage_object(usage);
  return json_text(whole);
}

std::string ResponseWriter::begin_event(size_t choice) const {
  if (head_.endpoint != Endpoint::chat) return "";
  return event_of(
      document(true, OrderedJson::array({{{"index", choice},
                                          {"delta", {{"role", "assistant"}, {"content", ""}}},
                                          {"logprobs", nullptr},
                                          {"finish_reason", nullptr}}})));
}

std::string ResponseWriter::event(const ResponseChoice& choice) const {
  OrderedJson entry = {{"index", choice.index}};
  if (head_.endpoint == Endpoint::chat) {
    entry["delta"] = message(choice, true);
  } else {
    entry["text"] = choice.text;
  }
  entry["logprobs"] = logprobs(choice);
  entry["finish_reason"] = finish_reason(choice);
  return event_of(document(true, OrderedJson::array({std::move(entry)})));
}

std::string ResponseWriter::usage_event(const TokenUsage& usage) const {
  OrderedJson whole = document(true, OrderedJson::array());
  whole["usage"] = usage_object(usage);
  return event_of(whole);
}

}  // namespace klotski
