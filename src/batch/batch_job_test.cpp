#include "batch/batch_job.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
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

  static constexpr int64_t kCreated = 1700000000;

  void SetUp() override { std::filesystem::create_directory(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  struct Result {
    BatchCounts counts;
    std::vector<Json> rows;
    std::map<std::string, Json> by_id;
    std::map<int64_t, std::string> reasons;
  };

  Result run(const std::string& input_text, BatchWindow window = {}, int most_steps = 1 << 30,
             ReadHook* hook = nullptr) {
    std::ofstream(folder_ / "in") << input_text;
    Result result;
    {
      InputFile input(folder_ / "in");
      JobResults output({.output = folder_ / "out", .overwrite = true}, input.descriptor(), {});
      output.begin({{"input", "in"}}, measure_rows(input).rows, kCreated);
      PipelineOptions options;
      options.disk.hook = hook;
      RunLimits limits;
      if (hook) {  // few experts are read before a row has chosen them
        limits.expert_slots = 4;
        limits.strategy = Strategy::activation_aware;
      }
      PreparedModel prepared = tiny().model.prepare(
          limits, {.sequences = 64, .tokens_per_sequence = 512, .prompt_tokens = 512}, options);
      Engine engine(prepared.pipeline());
      const RowDefaults defaults = tiny().defaults();
      BatchJob job(engine, defaults, "tiny", input, output, window);
      int steps = 0;
      result.counts = job.run(
          {.stop_asked = [&] { return steps >= most_steps; },
           .after_step = [&](const BatchCounts&) { ++steps; },
           .row_failed = [&](int64_t line,
                             const std::string& reason) { result.reasons[line] = reason; }});
      EXPECT_TRUE(engine.idle());
      if (output.rows_done() == output.rows()) output.finish();
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
  EXPECT_EQ(found["response"]["body"]["created"], kCreated);
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
  EXPECT_EQ(result.reasons.size(), 5u);
  EXPECT_EQ(result.reasons.at(2), "n: only 1 is supported");
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

// Prompts of many tokens fill the window sooner than rows do.
TEST_F(BatchJobTest, TheWindowIsBoundedByRowsAndByTokens) {
  std::string input;
  for (int i = 0; i < 10; ++i) {
    input += row(std::to_string(i), R"({"prompt":[5,6,7,8],"max_tokens":4})");
  }
  EXPECT_EQ(run(input, {.rows = 100, .pending_tokens = 8}, 1).counts.rows_begun, 2);
  std::filesystem::remove(folder_ / "out");
  EXPECT_EQ(run(input, {.rows = 3, .pending_tokens = 1000}, 1).counts.rows_begun, 3);
}

TEST_F(BatchJobTest, StoppingKeepsWholeRows) {
  const std::string input = row("short", R"({"prompt":"Once","max_tokens":1})") +
                            row("long", R"({"prompt":"Once","max_tokens":500})");
  const Result result = run(input, {}, 3);
  EXPECT_EQ(result.rows.size(), 1u);
  EXPECT_EQ(result.counts.rows_ok, 1);
  EXPECT_EQ(result.by_id.count("short"), 1u);
}

TEST_F(BatchJobTest, AStoppedJobGoesOnToTheBytesOfAnUndisturbedOne) {
  std::string input;
  for (int i = 0; i < 40; ++i) {
    input += row(
        std::to_string(i),
        fmt::format(R"({{"prompt":"Number {}","max_tokens":{},"temperature":1}})", i, 1 + i % 9));
  }
  const Result whole = run(input);
  std::filesystem::remove(folder_ / "out");
  size_t before = 0;
  for (int runs = 0; before < 40; ++runs) {
    ASSERT_LT(runs, 40);
    const Result part = run(input, {8, 1 << 20}, 12);
    EXPECT_GT(part.rows.size(), before);
    EXPECT_EQ(part.counts.rows_done(), static_cast<int64_t>(part.rows.size() - before));
    before = part.rows.size();
    if (before == 40) {
      EXPECT_EQ(part.by_id, whole.by_id);
    }
  }
}

// Fails reads of one expert's weights.
class BrokenExpert : public ReadHook {
 public:
  BrokenExpert(const Checkpoint& checkpoint, const std::string& part) {
    for (const TensorEntry& tensor : checkpoint.tensors()) {
      if (tensor.name.find(part) == std::string::npos) continue;
      // Reads of other experts are of whole pages, and may begin or end in this one.
      broken_.push_back({inode_of(checkpoint.file(tensor.shard)->descriptor()),
                         tensor.offset + kMostAlignment,
                         tensor.offset + tensor.bytes - kMostAlignment});
    }
  }
  int64_t completed(const ReadRequest& request, int64_t result) noexcept override {
    const ino_t inode = inode_of(request.descriptor);
    for (const Range& range : broken_) {
      const bool hit = range.inode == inode && request.offset < range.end &&
                       request.offset + request.bytes > range.begin;
      if (hit) return -EIO;
    }
    return result;
  }
  size_t tensors() const { return broken_.size(); }

 private:
  static constexpr uint64_t kMostAlignment = 4096;
  struct Range {
    ino_t inode;
    uint64_t begin;
    uint64_t end;
  };
  static ino_t inode_of(int descriptor) {
    struct stat status {};
    return ::fstat(descriptor, &status) == 0 ? status.st_ino : 0;
  }
  std::vector<Range> broken_;
};

TEST_F(BatchJobTest, AnExpertThatCannotBeReadCostsTheRowsThatNeedIt) {
  std::string input;
  for (int i = 0; i < 24; ++i) {
    input += row(std::to_string(i), fmt::format(R"({{"prompt":[{}],"max_tokens":2}})", 5 + 7 * i));
  }
  const Result whole = run(input);
  BrokenExpert broken(tiny().model.checkpoint, "layers.1.block_sparse_moe.experts.3.");
  ASSERT_GT(broken.tensors(), 0u);
  const Result result = run(input, {}, 1 << 30, &broken);
  ASSERT_EQ(result.rows.size(), 24u);
  EXPECT_GT(result.counts.rows_failed, 0);
  EXPECT_GT(result.counts.rows_ok, 0) << result.reasons.begin()->second;
  // Tokens of rows that failed later do not count.
  int64_t generated = 0;
  for (const auto& [id, found] : result.by_id) {
    if (!found["error"].is_null()) continue;
    generated += found["response"]["body"]["usage"]["completion_tokens"].get<int64_t>();
  }
  EXPECT_EQ(result.counts.generated_tokens, generated);
  EXPECT_EQ(result.counts.rows_begun, result.counts.rows_ok);
  EXPECT_EQ(result.counts.prompt_tokens, result.counts.rows_ok) << "prompts of one token";
  for (int i = 0; i < 24; ++i) {
    const std::string id = std::to_string(i);
    const size_t end = input.find('\n');
    std::filesystem::remove(folder_ / "out");
    const Result alone = run(input.substr(0, end + 1), {}, 1 << 30, &broken);
    input.erase(0, end + 1);
    EXPECT_EQ(alone.counts.rows_ok, result.by_id.at(id)["error"].is_null()) << id;
    if (alone.counts.rows_ok == 1) {
      EXPECT_EQ(result.by_id.at(id), whole.by_id.at(id));
    }
  }
}

TEST_F(BatchJobTest, NoRowsGiveNoResults) {
  EXPECT_TRUE(run("\n\n").rows.empty());
  EXPECT_EQ(run("").counts.rows_done(), 0);
}

}  // namespace
}  // namespace klotski
