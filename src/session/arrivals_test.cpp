#include "session/arrivals.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "base/testing.h"

namespace klotski {
namespace {

std::string trace_file(const std::string& name) {
  std::ifstream file(std::string(KLOTSKI_TEST_DATA) + "/traces/" + name, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(Arrivals, OfAzure) {
  const std::vector<Arrival> arrivals = read_arrivals(trace_file("azure_conv.csv"), "trace");
  ASSERT_EQ(arrivals.size(), 40u);
  EXPECT_EQ(arrivals[0], (Arrival{.prompt_tokens = 374, .generated_tokens = 44}));
  EXPECT_EQ(arrivals[1].prompt_tokens, 396);
  EXPECT_EQ(arrivals[1].generated_tokens, 109);
  EXPECT_DOUBLE_EQ(arrivals[1].seconds, 4.314579);  // 18:15:46.68059 to 18:15:50.995169
}

TEST(Arrivals, OfMooncake) {
  const std::vector<Arrival> arrivals =
      read_arrivals(trace_file("mooncake_conversation.jsonl"), "trace");
  ASSERT_EQ(arrivals.size(), 20u);
  EXPECT_EQ(
      arrivals[3],
      (Arrival{.prompt_tokens = 2290, .generated_tokens = 316, .blocks = {0, 42, 43, 44, 45}}));
  EXPECT_DOUBLE_EQ(arrivals[10].seconds, 3.0);
}

TEST(Arrivals, LineEndsAndZonesMayDiffer) {
  const std::string csv =
      "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-12-31 23:59:59.5+00:00,1,2\n\n"
      "2024-01-01 00:00:00,3,4";
  const std::vector<Arrival> arrivals = read_arrivals(csv, "trace");
  ASSERT_EQ(arrivals.size(), 2u);
  EXPECT_DOUBLE_EQ(arrivals[1].seconds, 0.5);
  EXPECT_EQ(arrivals[1].generated_tokens, 4);
}

TEST(Arrivals, WhatIsNoTraceIsRefusedByLine) {
  const std::string head = "TIMESTAMP,ContextTokens,GeneratedTokens\n";
  const std::string time = "2023-11-16 18:17:03.9799600";
  const std::string object = R"({"timestamp": 0, "input_length": 513, "output_length": 1)";
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {"", "expected a trace of Azure"},
      {"a,b\n1,2\n", "found 'a,b'"},
      {head, "expected requests, found none"},
      {head + time + ",1", "line 2: expected TIMESTAMP,ContextTokens"},
      {head + time + ",1,2,3", "GeneratedTokens from 1 to"},
      {head + time + ",0,2", "ContextTokens from 1 to"},
      {head + time + ",99999999999,2", "ContextTokens from 1 to"},
      {head + "2023-02-30 00:00:00,1,2", "expected a time"},
      {head + "2023-11-16 25:00:00,1,2", "expected a time"},
      {head + "2023-11-16 18:17:03.,1,2", "expected a time"},
      {head + "2023-11-16 18:17:03.1x,1,2", "expected a time"},
      {head + "yesterday,1,2", "expected a time"},
      {head + time + ",1,2\n2023-11-16 18:17:02,1,2", "line 3: expected a time that is not before"},
      {"{}", "line 1: expected timestamp from 0"},
      {object + "}\n[]", "line 2: expected a JSON object"},
      {object, "line 1"},
      {object + R"(, "hash_ids": [1]})", "expected 2 hash_ids"},
      {object + R"(, "hash_ids": [1, -1]})", "hash_ids from 0"},
      {object + R"(, "hash_ids": [1, 1e3]})", "hash_ids from 0"},
  };
  for (const auto& [text, says] : wrong) {
    const std::string message = refusal([&text = text] { read_arrivals(text, "trace"); });
    EXPECT_NE(message.find(says), std::string::npos) << text << ": " << message;
  }
}

TEST(Arrivals, ComeAtTheRateThatIsAskedFor) {
  std::vector<Arrival> arrivals(5);
  for (size_t i = 0; i < 5; ++i) arrivals[i].seconds = static_cast<double>(i * i);
  EXPECT_DOUBLE_EQ(arrival_rate(arrivals), 0.25);
  set_arrival_rate(arrivals, 2.0);
  EXPECT_DOUBLE_EQ(arrival_rate(arrivals), 2.0);
  EXPECT_DOUBLE_EQ(arrivals[2].seconds, 0.5) << "pauses keep their shares";
  std::vector<Arrival> at_once(3);
  set_arrival_rate(at_once, 2.0);
  EXPECT_EQ(at_once[2].seconds, 0.0);
  EXPECT_EQ(arrival_rate(at_once), 0.0);
}

}  // namespace
}  // namespace klotski
