#include "server/openai_requests.h"

#include <gtest/gtest.h>

namespace klotski {
namespace {

GenerationCall completion(std::string_view body, const SamplingOptions& defaults = {}) {
  return parse_generation(body, Endpoint::completions, defaults);
}
GenerationCall chat(std::string_view body) { return parse_generation(body, Endpoint::chat, {}); }

// The field that the refusal names; "none" where there is no refusal.
std::string refused_field(std::string_view body, Endpoint endpoint = Endpoint::completions) {
  try {
    parse_generation(body, endpoint, {});
    return "none";
  } catch (const ApiError& error) {
    EXPECT_EQ(error.status(), Status::bad_request);
    return error.param();
  }
}

// A completion's body with one more field.
std::string with(const std::string& field) { return R"({"prompt": "a", )" + field + "}"; }
std::string chat_with(const std::string& field) {
  return R"({"messages": [{"role": "user", "content": "a"}], )" + field + "}";
}

TEST(OpenaiRequests, ReadEveryFieldOfACompletion) {
  const GenerationCall call = completion(R"({
    "model": "m", "prompt": "a", "n": 3, "stop": ["x", "yz"], "seed": -1, "temperature": 0.5,
    "top_p": 0.9, "top_k": 40, "min_p": 0.1, "presence_penalty": 1, "frequency_penalty": -1,
    "repetition_penalty": 1.5, "max_tokens": 7, "logprobs": 2, "logit_bias": {"5": -100},
    "stream": true, "stream_options": {"include_usage": true}, "user": "somebody",
    "ignore_eos": true, "a field of tomorrow": {"x": []}})");
  EXPECT_EQ(call.model, "m");
  EXPECT_EQ(std::get<std::string>(call.prompts.at(0)), "a");
  EXPECT_EQ(call.choices, 3);
  EXPECT_EQ(call.stop_strings, (std::vector<std::string>{"x", "yz"}));
  EXPECT_TRUE(call.has_seed);
  EXPECT_EQ(call.sampling.seed, UINT64_MAX);
  EXPECT_EQ(call.sampling.temperature, 0.5);
  EXPECT_EQ(call.sampling.top_k, 40);
  EXPECT_EQ(call.sampling.min_p, 0.1);
  EXPECT_EQ(call.sampling.repetition_penalty, 1.5);
  EXPECT_EQ(call.sampling.frequency_penalty, -1.0);
  EXPECT_EQ(call.sampling.logit_bias, (std::vector<std::pair<TokenId, double>>{{5, -100.0}}));
  EXPECT_EQ(call.max_tokens, 7);
  EXPECT_EQ(call.logprobs, 2);
  EXPECT_TRUE(call.stream && call.include_usage && call.ignore_end);
}

TEST(OpenaiRequests, AbsentAndNullFieldsKeepTheDefaults) {
  const SamplingOptions defaults{.temperature = 0.7, .top_k = 9};
  const GenerationCall call = completion(
      R"({"prompt": "a", "temperature": null, "n": null, "stop": null, "logprobs": null})",
      defaults);
  EXPECT_EQ(call.sampling.temperature, 0.7);
  EXPECT_EQ(call.sampling.top_k, 9);
  EXPECT_EQ(call.choices, 1);
  EXPECT_FALSE(call.has_seed || call.stream || call.echo || call.logprobs || call.max_tokens);
}

TEST(OpenaiRequests, PromptsAreTextsOrTokensOneOrSeveral) {
  EXPECT_EQ(completion(R"({"prompt": ["a", "b"]})").prompts.size(), 2U);
  const GenerationCall tokens = completion(R"({"prompt": [1, 2, 3]})");
  EXPECT_EQ(std::get<std::vector<TokenId>>(tokens.prompts.at(0)), (std::vector<TokenId>{1, 2, 3}));
  EXPECT_EQ(completion(R"({"prompt": [[1, 2], "b", [3]]})").prompts.size(), 3U);
  for (const char* prompt : {"null", "[]", "7", "{}", "[1, \"a\"]", "[-1]", "[1.5]", "[2147483648]",
                             "[[1], 7]", "[null]", "[[\"a\"]]"}) {
    EXPECT_EQ(refused_field(fmt::format(R"({{"prompt": {}}})", prompt)), "prompt") << prompt;
  }
}

TEST(OpenaiRequests, ValuesOutOfBoundsAreRefusedByName) {
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {"n", "0"},
      {"n", "-1"},
      {"n", "1000000000"},
      {"n", "1.5"},
      {"n", "\"1\""},
      {"max_tokens", "0"},
      {"max_tokens", "-1"},
      {"max_tokens", "2147483648"},
      {"max_completion_tokens", "0"},
      {"temperature", "-1"},
      {"temperature", "1e308"},
      {"temperature", "\"hot\""},
      {"top_p", "2"},
      {"top_p", "-0.1"},
      {"top_k", "-2"},
      {"min_p", "1.1"},
      {"seed", "18446744073709551615"},
      {"seed", "0.5"},
      {"presence_penalty", "1000"},
      {"frequency_penalty", "-1000"},
      {"repetition_penalty", "0"},
      {"stop", "\"\""},
      {"stop", "[\"a\", 1]"},
      {"stop", "[\"a\",\"b\",\"c\",\"d\",\"e\"]"},
      {"stop", "{}"},
      {"logprobs", "21"},
      {"logprobs", "-1"},
      {"logprobs", "true"},
      {"logit_bias", "[]"},
      {"logit_bias", "{\"x\": 1}"},
      {"logit_bias", "{\"1\": 101}"},
      {"logit_bias", "{\"-1\": 1}"},
      {"logit_bias", "{\"1\": \"a\"}"},
      {"logit_bias", "{\"\": 1}"},
      {"stream", "1"},
      {"echo", "\"yes\""},
      {"model", "5"},
      {"stream_options", "{}"},
      {"ignore_eos", "3"}};
  for (const auto& [field, value] : wrong) {
    EXPECT_EQ(refused_field(with(fmt::format("\"{}\": {}", field, value))), field) << value;
  }
  EXPECT_EQ(refused_field(with("\"stop\": \"" + std::string(5000, 'x') + "\"")), "stop");
  EXPECT_EQ(refused_field(R"({"prompt": ["a", "b"], "n": 100})"), "n");
}

TEST(OpenaiRequests, FieldsThatWouldChangeTheAnswerAreRefusedByName) {
  for (const char* field : {"suffix", "functions", "guided_json", "min_tokens", "audio"}) {
    EXPECT_EQ(refused_field(with(fmt::format("\"{}\": \"x\"", field))), field);
    EXPECT_EQ(refused_field(with(fmt::format("\"{}\": null", field))), "none");
  }
  EXPECT_EQ(refused_field(with(R"("best_of": 2)")), "best_of");
  EXPECT_EQ(refused_field(with(R"("response_format": {"type": "json_object"})")),
            "response_format");
  EXPECT_EQ(refused_field(with(R"("response_format": {"type": "text"})")), "none");
  EXPECT_EQ(refused_field(with(R"("echo": true, "logprobs": 1)")), "logprobs");
  EXPECT_EQ(refused_field(chat_with(R"("tool_choice": "required")"), Endpoint::chat),
            "tool_choice");
  EXPECT_EQ(refused_field(chat_with(R"("top_logprobs": 3)"), Endpoint::chat), "top_logprobs");
  EXPECT_EQ(refused_field(chat_with(R"("modalities": ["audio"])"), Endpoint::chat), "modalities");
}

TEST(OpenaiRequests, BodiesThatAreNoObjectsAreRefused) {
  for (const std::string& body :
       {std::string(), std::string("["), std::string("[]"), std::string("null"),
        std::string("\xff"), std::string("{\"prompt\": \"\\ud800\"}"),
        std::string("{\"a\": 1e400}"), std::string("{\"a\": 1, \"a\": 2}"),
        std::string(100'000, '['), std::string("{}\0", 3)}) {
    EXPECT_NE(refused_field(body), "none") << body.substr(0, 40);
  }
}

TEST(OpenaiRequests, MessagesBecomeOneTextEach) {
  const GenerationCall call = chat(R"({"messages": [
    {"role": "system", "content": "s"},
    {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
    {"role": "assistant", "content": null, "tool_calls": [
      {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{\"x\": 1}"}}]},
    {"role": "tool", "tool_call_id": "1", "content": "7"}],
    "logprobs": true, "top_logprobs": 4, "max_tokens": 3, "max_completion_tokens": 5})");
  EXPECT_EQ(call.messages[1]["content"], "ab");
  EXPECT_EQ(call.messages[2]["content"], "");
  EXPECT_EQ(call.messages[2]["tool_calls"][0]["function"]["arguments"]["x"], 1);
  EXPECT_EQ(call.logprobs, 4);
  EXPECT_EQ(call.max_tokens, 5);
  for (const char* messages :
       {"[]", "null", "7", "[1]", "[{}]", R"([{"role": "user"}])",
        R"([{"role": 1, "content": ""}])", R"([{"role": "user", "content": 5}])",
        R"([{"role": "user", "content": [{"type": "x"}]}])",
        R"([{"role": "assistant", "content": "", "tool_calls": [{}]}])",
        R"([{"role": "assistant", "content": "", "tool_calls": 5}])"}) {
    EXPECT_EQ(refused_field(fmt::format(R"({{"messages": {}}})", messages), Endpoint::chat),
              "messages")
        << messages;
  }
}

TEST(OpenaiRequests, ToolsAreFunctions) {
  const std::string tools = R"("tools": [{"type": "function", "function": {"name": "f"}}])";
  EXPECT_EQ(chat(chat_with(tools)).tools.size(), 1U);
  EXPECT_TRUE(chat(chat_with(tools + R"(, "tool_choice": "none")")).tools.is_null());
  EXPECT_TRUE(chat(chat_with(R"("tools": [])")).tools.is_null());
  for (const char* wrong : {"{}", "[1]", R"([{"type": "function"}])",
                            R"([{"type": "web", "function": {"name": "f"}}])"}) {
    EXPECT_EQ(refused_field(chat_with(fmt::format("\"tools\": {}", wrong)), Endpoint::chat),
              "tools");
  }
}

TEST(OpenaiRequests, TokenizeTakesATextOrMessages) {
  EXPECT_EQ(parse_tokenize(R"({"prompt": "a", "add_special_tokens": false})").text, "a");
  EXPECT_EQ(parse_tokenize(R"({"content": ""})").text, "");
  EXPECT_EQ(parse_tokenize(R"({"messages": [{"role": "user", "content": "a"}]})").messages.size(),
            1U);
  EXPECT_THROW(parse_tokenize("{}"), ApiError);
  EXPECT_EQ(parse_detokenize(R"({"tokens": [1, 2]})"), (std::vector<TokenId>{1, 2}));
  EXPECT_THROW(parse_detokenize(R"({"tokens": [-1]})"), ApiError);
  EXPECT_THROW(parse_detokenize("{}"), ApiError);
}

}  // namespace
}  // namespace klotski
