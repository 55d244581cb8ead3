#include "batch/result.h"

namespace klotski {

namespace {

OrderedJson or_null(const std::string& text) {
  return text.empty() ? OrderedJson(nullptr) : OrderedJson(text);
}

std::string result_line(const ResultHead& head, OrderedJson response, OrderedJson error) {
  const OrderedJson row = {
      {"id", fmt::format("batch_req_{}", head.line)},
      {"custom_id", head.custom_id ? OrderedJson(*head.custom_id) : OrderedJson(nullptr)},
      {"response", std::move(response)},
      {"error", std::move(error)}};
  // A model may generate bytes that are no UTF-8.
  return row.dump(-1, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

OrderedJson response_with(const ResultHead& head, int status, OrderedJson body) {
  return {{"status_code", status},
          {"request_id", fmt::format("req_{}", head.line)},
          {"body", std::move(body)}};
}

}  // namespace

std::string response_line(const ResultHead& head, int status, OrderedJson body) {
  return result_line(head, response_with(head, status, std::move(body)), nullptr);
}

std::string completion_line(const ResultHead& head, const Completion& completion) {
  OrderedJson choice = {{"index", 0}};
  if (completion.chat) {
    choice["message"] = {{"role", "assistant"}, {"content", completion.text}};
  } else {
    choice["text"] = completion.text;
  }
  choice["logprobs"] = nullptr;
  choice["finish_reason"] = completion.by_length ? "length" : "stop";
  OrderedJson body = {
      {"id", fmt::format("{}-{}", completion.chat ? "chatcmpl" : "cmpl", head.line)},
      {"object", completion.chat ? "chat.completion" : "text_completion"},
      {"created", completion.created},
      {"model", completion.model},
      {"choices", OrderedJson::array({std::move(choice)})},
      {"usage",
       {{"prompt_tokens", completion.prompt_tokens},
        {"completion_tokens", completion.completion_tokens},
        {"total_tokens", completion.prompt_tokens + completion.completion_tokens}}}};
  if (!completion.lossy.empty()) body["klotski"] = {{"lossy", completion.lossy}};
  return response_line(head, 200, std::move(body));
}

std::string refusal_line(const ResultHead& head, const std::string& message,
                         const std::string& param) {
  OrderedJson body = {{"error",
                       {{"message", fmt::format("line {}: {}", head.line, message)},
                        {"type", "invalid_request_error"},
                        {"param", or_null(param)},
                        {"code", nullptr}}}};
  return response_line(head, 400, std::move(body));
}

std::string failure_line(const ResultHead& head, const std::string& message) {
  return result_line(
      head, nullptr,
      {{"code", "server_error"}, {"message", fmt::format("line {}: {}", head.line, message)}});
}

}  // namespace klotski
