#include "batch/batch_job.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <map>

#include "batch/testing.h"
#include "batch/usual_row.h"

namespace klotski {
namespace {

class BatchJobTest : public testing::Test {
 protected:
  std::filesystem::path folder_ =
      std::filesystem::path(testing::TempDir()) / (std::to_string(::getpid()) + "_batch_job_test");

  void SetUp() override { std::filesystem::create_directory(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  struct Result {
    BatchCounts counts;
    std::vector<Json> rows;
    std::map<std::string, Json> by_id;
  };

  Result run(const std::string& input_text, BatchWindow window = {}, int most_steps = 1 << 30) {
    std::ofstream(folder_ / "in") << input_text;
    Result result;
    {
      InputFile input(folder_ / "in");
      ResultFile output(folder_ / "out", true, input.descriptor());
      PreparedModel prepared = tiny().model.prepare(
          {}, {.sequences = 64, .tokens_per_sequence = 512, .prompt_tokens = 512});
      Engine engine(prepared.pipeline());
      const RowDefaults defaults = tiny().defaults();
      BatchJob job(engine, defaults, "tiny", input, output, window);
      int steps = 0;
      result.counts = job.run({.stop_asked = [&] { return steps >= most_steps; },
                               .after_step = [&](const BatchCounts&) { ++steps; }});
      EXPECT_TRUE(engine.idle());
    }
    std::ifstream out(folder_ / "out");
    for (std::string line; std::getline(out, line);) {
      result.rows.push_back(Json::parse(line));
      const Json& id = result.rows.back()["custom_id"];
      if (id.is_string()) result.by_id[id.get<std::string>()] = result.rows.back();
    }
    return result;
  }

  static std::string row(const std::string& id, const std::string& body) {
    return R"({"custom_id":")" + id + R"(","method":"POST","url":"/v1/completions","body":)" +
           body + "}\n";
  }
};

TEST_F(BatchJobTest, TheUsualRowIsTheMeanOfThoseThatCanRun) {
  const auto usual = [&](const std::string& text, int64_t most = 64) {
    std::ofstream(folder_ / "in") << text;
    InputFile input(folder_ / "in");
    const UsualRow found = usual_row(input, tiny().defaults(), most);
    InputLine line;
    EXPECT_EQ(input.next(line) ? line.number : 0, text.empty() ? 0 : 1);
    return found;
  };
  const std::string rows = row("a", R"({"prompt":[5,6,7,8],"max_tokens":3})") + "not a row\n" +
                           row("b", R"({"prompt":[5,6],"max_tokens":9})");
  EXPECT_EQ(usual(rows).prompt_tokens, 3);
  EXPECT_EQ(usual(rows).generated_tokens, 6);
  EXPECT_EQ(usual(rows).most_tokens, 11);
  EXPECT_EQ(usual(rows, 1).prompt_tokens, 4);
  EXPECT_EQ(usual("").prompt_tokens, 0);
}

TEST_F(BatchJobTest, ResultsHaveTheDocumentedForm) {
  const Result result = run(row("a", R"({"prompt":"My fellow citizens,","max_tokens":5})"));
  ASSERT_EQ(result.rows.size(), 1u);
  Json found = result.rows[0];
  EXPECT_GT(found["response"]["body"]["created"].get<int64_t>(), 1600000000);
  found["response"]["body"].erase("created");
  EXPECT_EQ(found, Json::parse(R"({"id":"batch_req_1","custom_id":"a","error":null,"response":{
      "status_code":200,"request_id":"req_1","body":{"id":"cmpl-1","object":"text_completion",
      "model":"tiny","choices":[{"index":0,"text":" I have been in the","logprobs":null,
      "finish_reason":"length"}],"usage":{"prompt_tokens":6,"completion_tokens":5,"total_tokens":11}}}})"));
  EXPECT_EQ(result.counts.rows_ok, 1);
  EXPECT_EQ(result.counts.prompt_tokens, 6);
  EXPECT_EQ(result.counts.generated_tokens, 5);
}

TEST_F(BatchJobTest, BadRowsGiveErrorRowsAndTheJobGoesOn) {
  const std::string too_long(20000, 'a');
  const Result result = run("nonsense\n" + row("a", R"({"prompt":"Once","n":2})") +
                            row("long", R"({"prompt":")" + too_long + "\"}") +
                            row("outside", R"({"prompt":[999999]})") +
                            row("empty", R"({"prompt":[]})") + row("good", R"({"prompt":"Once"})"));
  EXPECT_EQ(result.counts.rows_ok, 1);
  EXPECT_EQ(result.counts.rows_failed, 5);
  ASSERT_EQ(result.rows.size(), 6u);
  EXPECT_TRUE(result.rows[0]["custom_id"].is_null());
  EXPECT_NE(
      result.rows[0]["response"]["body"]["error"]["message"].get<std::string>().find("line 1"),
      std::string::npos);
  for (const char* id : {"a", "long", "outside", "empty"}) {
    const Json& bad = result.by_id.at(id);
    EXPECT_EQ(bad["response"]["status_code"], 400) << id;
    EXPECT_EQ(bad["response"]["body"]["error"]["type"], "invalid_request_error");
    EXPECT_TRUE(bad["error"].is_null());
  }
  EXPECT_EQ(result.by_id.at("a")["response"]["body"]["error"]["param"], "n");
  EXPECT_EQ(result.by_id.at("good")["response"]["status_code"], 200);
}

TEST_F(BatchJobTest, StopStringsEndARowEarly) {
  const Result result =
      run(row("a", R"({"prompt":"My fellow citizens,","max_tokens":50,"stop":" same"})") +
          row("b", R"({"prompt":"My fellow citizens,","max_tokens":5,"stop":[" been"]})"));
  const Json choice = result.by_id.at("a")["response"]["body"]["choices"][0];
  EXPECT_EQ(choice["text"], " I have been in the");
  EXPECT_EQ(choice["finish_reason"], "stop");
  EXPECT_EQ(result.by_id.at("b")["response"]["body"]["choices"][0]["text"], " I have");
}

TEST_F(BatchJobTest, TheWindowDoesNotChangeTheResults) {
  std::string input;
  for (int i = 0; i < 30; ++i) {
    input +=
        row(std::to_string(i),
            fmt::format(R"({{"prompt":"Number {}","max_tokens":{},"temperature":1,"seed":{}}})", i,
                        1 + i % 7, i));
  }
  const Result wide = run(input);
  for (const BatchWindow window : {BatchWindow{1, 1 << 20}, BatchWindow{4, 1}}) {
    const Result narrow = run(input, window);
    ASSERT_EQ(narrow.by_id.size(), 30u);
    for (const auto& one : wide.by_id) {
      EXPECT_EQ(narrow.by_id.at(one.first)["response"]["body"]["choices"],
                one.second["response"]["body"]["choices"]);
    }
  }
}

TEST_F(BatchJobTest, StoppingKeepsWholeRows) {
  const std::string input = row("short", R"({"prompt":"Once","max_tokens":1})") +
                            row("long", R"({"prompt":"Once","max_tokens":500})");
  const Result result = run(input, {}, 3);
  EXPECT_EQ(result.rows.size(), 1u);
  EXPECT_EQ(result.counts.rows_ok, 1);
  EXPECT_EQ(result.by_id.count("short"), 1u);
}

TEST_F(BatchJobTest, NoRowsGiveNoResults) {
  EXPECT_TRUE(run("\n\n").rows.empty());
  EXPECT_EQ(run("").counts.rows_done(), 0);
}

}  // namespace
}  // namespace klotski
