#include "batch/row.h"

#include <gtest/gtest.h>

#include "batch/testing.h"

namespace klotski {
namespace {

std::string row(const std::string& body, const std::string& url = "/v1/completions") {
  return R"({"custom_id":"a","method":"POST","url":")" + url + R"(","body":)" + body + "}";
}

RowRequest build(const std::string& line) {
  return build_request(parse_envelope(line), tiny().defaults());
}

// The message and the field at fault, as "param: message".
std::string refusal(const std::string& line) {
  try {
    build(line);
  } catch (const BadRow& bad) {
    return bad.param() + "|" + bad.what();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(BatchRow, FieldsBecomeARequest) {
  const RowRequest built = build(row(
      R"({"model":"any","prompt":"Once","max_tokens":5,"temperature":0.5,"top_p":0.9,"top_k":7,)"
      R"("seed":-1,"stop":["x","y"],"n":1,"stream":false,"user":"me","logprobs":null,"tools":[]})"));
  EXPECT_FALSE(built.chat);
  EXPECT_EQ(built.request.max_tokens, 5);
  EXPECT_EQ(built.request.sampling.temperature, 0.5);
  EXPECT_EQ(built.request.sampling.top_p, 0.9);
  EXPECT_EQ(built.request.sampling.top_k, 7);
  EXPECT_EQ(built.request.sampling.seed, UINT64_MAX);
  EXPECT_EQ(built.stop_strings, (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(built.request.stop_tokens, tiny().model.description.end_tokens);
  EXPECT_EQ(build(row(R"({"prompt":["Once"]})")).request.prompt, built.request.prompt);
  EXPECT_EQ(build(row(R"({"prompt":"Once"})")).request.max_tokens, 8);
  EXPECT_EQ(build(row(R"({"prompt":"Once","max_completion_tokens":3})")).request.max_tokens, 3);
  EXPECT_EQ(build(row(R"({"prompt":"Once","stop":"end"})")).stop_strings.size(), 1u);
}

TEST(BatchRow, PromptsOfTokensAndOfMessages) {
  EXPECT_EQ(build(row(R"({"prompt":[5,6,7]})")).request.prompt, (std::vector<TokenId>{5, 6, 7}));
  const std::string chat = "/v1/chat/completions";
  const RowRequest plain = build(row(R"({"messages":[{"role":"user","content":"Hi you"}]})", chat));
  EXPECT_TRUE(plain.chat);
  const RowRequest parts = build(
      row(R"({"messages":[{"content":[{"type":"text","text":"Hi"},{"type":"text","text":" you"}],)"
          R"("role":"user"}],"response_format":{"type":"text"}})",
          chat));
  EXPECT_EQ(parts.request.prompt, plain.request.prompt);
}

TEST(BatchRow, BadEnvelopesAreRefused) {
  for (const char* line : {"", "{", "[]", "7", "{}", R"({"custom_id":""})", R"({"custom_id":7})",
                           R"({"custom_id":null})", R"({"custom_id":"a","custom_id":"b"})",
                           "{\"custom_id\":\"\xFF\"}"}) {
    EXPECT_NE(refusal(line), "") << line;
  }
  EXPECT_NE(refusal(R"({"custom_id":")" + std::string(600, 'x') + "\"}"), "");
  EXPECT_EQ(refusal(R"({"custom_id":"a","url":"/v1/completions","body":{}})").substr(0, 7),
            "method|");
  EXPECT_EQ(refusal(row("{}", "/v1/embeddings")).substr(0, 4), "url|");
  EXPECT_EQ(refusal(row("[]")).substr(0, 5), "body|");
}

TEST(BatchRow, WhatIsNotSupportedIsRefusedByName) {
  const std::pair<const char*, const char*> cases[] = {
      {"tools", R"([{"type":"function"}])"},
      {"tool_choice", R"("auto")"},
      {"response_format", R"({"type":"json_object"})"},
      {"response_format", "7"},
      {"logprobs", "true"},
      {"logprobs", "3"},
      {"n", "2"},
      {"n", R"("1")"},
      {"best_of", "3"},
      {"stream", "true"},
      {"echo", "true"},
      {"logit_bias", R"({"5":1})"},
      {"modalities", R"(["audio"])"},
      {"temperature", "-1"},
      {"temperature", R"("0")"},
      {"top_p", "1.5"},
      {"seed", "0.5"},
      {"max_tokens", "0"},
      {"max_tokens", "18446744073709551615"},
      {"stop", R"("")"},
      {"stop", "[1]"},
      {"stop", R"(["1","2","3","4","5","6","7","8","9","0","1","2","3","4","5","6","7"])"},
  };
  for (const auto& [key, value] : cases) {
    const std::string body = fmt::format(R"({{"prompt":"Once","{}":{}}})", key, value);
    EXPECT_EQ(refusal(row(body)).substr(0, std::string(key).size() + 1), std::string(key) + "|")
        << body;
  }
}

TEST(BatchRow, BadPromptsAreRefused) {
  for (const char* body :
       {"{}", R"({"prompt":null})", R"({"prompt":7})", R"({"prompt":{}})",
        R"({"prompt":["a","b"]})", R"({"prompt":[[1,2],[3]]})", R"({"prompt":[-1]})",
        R"({"prompt":[1.5]})", R"({"prompt":[4294967296]})"}) {
    EXPECT_EQ(refusal(row(body)).substr(0, 7), "prompt|") << body;
  }
  for (const char* messages : {"null", "[]", "{}", "[7]", R"([{"content":"x"}])",
                               R"([{"role":"user"}])", R"([{"role":"user","content":7}])",
                               R"([{"role":"user","content":[{"type":"image_url"}]}])"}) {
    const std::string body = fmt::format(R"({{"messages":{}}})", messages);
    EXPECT_EQ(refusal(row(body, "/v1/chat/completions")).substr(0, 9), "messages|") << body;
  }
  EXPECT_NE(refusal(row(R"({"messages":[{"role":"odd","content":"x"}]})", "/v1/chat/completions")),
            "");
}

TEST(BatchRow, ChatNeedsATemplate) {
  RowDefaults defaults = tiny().defaults();
  defaults.chat_template = nullptr;
  const RowEnvelope envelope = parse_envelope(
      row(R"({"messages":[{"role":"user","content":"x"}]})", "/v1/chat/completions"));
  EXPECT_THROW(build_request(envelope, defaults), BadRow);
}

}  // namespace
}  // namespace klotski
