#include "server/openai_responses.h"

#include <gtest/gtest.h>

#include "server/choice_progress.h"
#include "session/model_tokenizer.h"

namespace klotski {
namespace {

const Tokenizer& tokenizer() {
  static const Tokenizer tiny = load_tokenizer(std::string(KLOTSKI_MODELS) + "/tiny-mixtral");
  return tiny;
}

ResponseWriter writer(Endpoint endpoint, bool logprobs = false) {
  return {{.endpoint = endpoint, .id = "id", .model = "m", .created = 5}, tokenizer(), logprobs};
}

OrderedJson event_data(const std::string& event) {
  EXPECT_TRUE(event.starts_with("data: ") && event.ends_with("\n\n"));
  EXPECT_EQ(event.find('\n'), event.size() - 2);
  return OrderedJson::parse(event.substr(6));
}

TEST(OpenaiResponses, ACompletionHasItsTextReasonAndUsage) {
  const std::vector<ResponseChoice> choices = {
      {.index = 0, .text = "a\xff", .finish = FinishReason::length},
      {.index = 1, .text = "b", .finish = FinishReason::stop}};
  const OrderedJson body = OrderedJson::parse(writer(Endpoint::completions).body(choices, {3, 4}));
  EXPECT_EQ(body["object"], "text_completion");
  EXPECT_EQ(body["choices"][0]["text"], "a\xEF\xBF\xBD");  // invalid UTF-8 was repaired
  EXPECT_EQ(body["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(body["choices"][1]["finish_reason"], "stop");
  EXPECT_TRUE(body["choices"][1]["logprobs"].is_null());
  EXPECT_EQ(body["usage"]["total_tokens"], 7);
}

TEST(OpenaiResponses, AChatIsAMessageOrItsParts) {
  const ResponseWriter chat = writer(Endpoint::chat);
  const OrderedJson body = OrderedJson::parse(
      chat.body({{.index = 0, .text = "hello", .finish = FinishReason::stop}}, {1, 1}));
  EXPECT_EQ(body["object"], "chat.completion");
  EXPECT_EQ(body["choices"][0]["message"],
            (OrderedJson{{"role", "assistant"}, {"content", "hello"}}));
  const OrderedJson first = event_data(chat.begin_event(2));
  EXPECT_EQ(first["object"], "chat.completion.chunk");
  EXPECT_EQ(first["choices"][0]["index"], 2);
  EXPECT_EQ(first["choices"][0]["delta"]["role"], "assistant");
  const OrderedJson next = event_data(chat.event({.index = 2, .text = "hel"}));
  EXPECT_EQ(next["choices"][0]["delta"], (OrderedJson{{"content", "hel"}}));
  EXPECT_TRUE(next["choices"][0]["finish_reason"].is_null());
  const OrderedJson usage = event_data(chat.usage_event({1, 2}));
  EXPECT_TRUE(usage["choices"].empty());
  EXPECT_EQ(usage["usage"]["completion_tokens"], 2);
  EXPECT_FALSE(usage["usage"].contains("completion_tokens_details"));
  const OrderedJson drafted = event_data(chat.usage_event({1, 9, {.drafted = 8, .accepted = 5}}));
  EXPECT_EQ(
      drafted["usage"]["completion_tokens_details"],
      OrderedJson::parse(R"({"accepted_prediction_tokens": 5, "rejected_prediction_tokens": 3})"));
  EXPECT_EQ(writer(Endpoint::completions).begin_event(0), "");
}

TEST(OpenaiResponses, CallsOfToolsAreToldFromText) {
  ChoiceProgress progress(true);
  ResponseChoice whole;
  const auto add = [&](ChoiceUpdate update) { append(whole, progress.next(std::move(update))); };
  add({.text = "<tool_call>{\"name\": \"f\", \"argu"});
  EXPECT_FALSE(says_something(whole));
  add({.text = "ments\": {\"x\": 1}}</tool_call>"});
  add({.text = "", .finish = FinishReason::stop});
  const OrderedJson body = OrderedJson::parse(writer(Endpoint::chat).body({whole}, {}));
  const OrderedJson& choice = body["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  EXPECT_TRUE(choice["message"]["content"].is_null());
  EXPECT_EQ(choice["message"]["tool_calls"][0]["function"],
            (OrderedJson{{"name", "f"}, {"arguments", "{\"x\":1}"}}));
  EXPECT_EQ(choice["message"]["tool_calls"][0]["type"], "function");
}

TEST(OpenaiResponses, WithoutToolsTextStaysText) {
  ChoiceProgress progress(false);
  const std::string text = "<tool_call>{\"name\": \"f\"}</tool_call>";
  EXPECT_EQ(progress.next({.text = text}).text, text);
  EXPECT_EQ(progress.next({.text = "a"}).text_before, text.size());
}

TEST(OpenaiResponses, LogprobsHaveTheFormOfTheirEndpoint) {
  const std::vector<TokenId> tokens = tokenizer().encode("Hello there", {});
  ResponseChoice choice{.index = 0, .text = "Hello there", .finish = FinishReason::stop};
  for (const TokenId token : tokens) {
    choice.details.push_back({token, {.chosen = -0.5, .top = {{token, -0.5}, {5, -2.0}}}});
  }
  const OrderedJson chat =
      OrderedJson::parse(writer(Endpoint::chat, true).body({choice}, {}))["choices"][0]["logprobs"];
  EXPECT_EQ(chat["content"].size(), tokens.size());
  EXPECT_EQ(chat["content"][0]["logprob"], -0.5);
  EXPECT_EQ(chat["content"][0]["top_logprobs"].size(), 2U);
  const OrderedJson plain = OrderedJson::parse(
      writer(Endpoint::completions, true).body({choice}, {}))["choices"][0]["logprobs"];
  EXPECT_EQ(plain["tokens"].size(), tokens.size());
  EXPECT_EQ(plain["text_offset"][0], 0);
  EXPECT_EQ(plain["text_offset"][1], plain["tokens"][0].get<std::string>().size());
  EXPECT_EQ(plain["top_logprobs"][0].size(), 2U);
}

TEST(OpenaiResponses, ErrorsHaveOpenaisForm) {
  const OrderedJson error =
      error_body({Status::too_many_requests, "full\nof it", "", "queue_full"})["error"];
  EXPECT_EQ(error["type"], "rate_limit_error");
  EXPECT_EQ(error["message"].get<std::string>().find('\n'), std::string::npos);
  EXPECT_TRUE(error["param"].is_null());
  EXPECT_EQ(error["code"], "queue_full");
  EXPECT_EQ(event_data(error_event({Status::bad_request, "x", "n"}))["error"]["param"], "n");
}

}  // namespace
}  // namespace klotski
