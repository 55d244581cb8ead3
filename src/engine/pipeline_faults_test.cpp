// A disk that fails, stalls, answers short or loses its files under a running model.

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <fstream>
#include <functional>
#include <map>
#include <new>
#include <thread>

#include "base/error.h"
#include "base/testing.h"
#include "engine/engine.h"
#include "engine/testing/fault_hook.h"
#include "engine/testing/pipeline_runs.h"
#include "weights/testing.h"

namespace klotski {
namespace {

// Waits until units that are read ahead have failed, which may be after a pass has ended.
void let_loads_fail() { std::this_thread::sleep_for(std::chrono::milliseconds(150)); }

class FaultyDisk : public ::testing::TestWithParam<ReadMethod> {
 protected:
  FaultyDisk() : test_(test_model("mixtral")) {
    std::mt19937_64 random(5);
    texts_ = random_texts(random, 5, test_.description.vocabulary);
    expected_ = run_resident(test_, texts_);
  }
  void SetUp() override {
    if (GetParam() == ReadMethod::io_uring && make_uring_queue(1) == nullptr) {
      GTEST_SKIP() << "io_uring is refused here";
    }
  }

  // Few slots, so that weights are read again and again.
  PreparedModel prepare(FaultHook* hook, uint64_t bytes_per_second = 0) const {
    PipelineOptions options;
    options.disk = {.method = GetParam(),
                    .queue_depth = 4,
                    .block_bytes = 16 * kKiB,
                    .bytes_per_second = bytes_per_second,
                    .hook = hook};
    return test_.prepare({.expert_slots = 3, .micro_batch = 2, .micro_batches = 2},
                         texts_.workload(), options);
  }
  std::vector<Logits> run(PreparedModel& prepared) const {
    std::mt19937_64 random(1);
    return run_pipeline(prepared.pipeline(), texts_, random);
  }
  // Requests that a clean run makes.
  int requests() const {
    FaultHook hook([](int, int64_t result) { return result; });
    PreparedModel prepared = prepare(&hook);
    run(prepared);
    return hook.calls();
  }

  TestModel test_;
  Texts texts_;
  std::vector<Logits> expected_;
};

TEST_P(FaultyDisk, AnErrorThatPassesIsNotSeen) {
  const int count = requests();
  for (int bad = 0; bad < count; bad += std::max(1, count / 8)) {
    FaultHook hook([&](int call, int64_t result) { return call == bad ? -EIO : result; });
    PreparedModel prepared = prepare(&hook);
    ASSERT_EQ(run(prepared), expected_) << "request " << bad << " of " << count;
  }
}

TEST_P(FaultyDisk, AnErrorThatStaysFailsThePassAndTheNextIsRight) {
  const int count = requests();
  for (int bad = 0; bad < count; bad += std::max(1, count / 8)) {
    SCOPED_TRACE(bad);
    FaultHook hook([&](int call, int64_t result) { return call >= bad ? -EIO : result; });
    PreparedModel prepared = prepare(&hook);
    try {
      // Reads for passes that never come may fail unnoticed.
      EXPECT_EQ(run(prepared), expected_);
      EXPECT_GT(bad, count / 2);
      let_loads_fail();
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("safetensors"), std::string::npos) << error.what();
    }
    EXPECT_EQ(prepared.pipeline().cache().pages_in_use(), 0);
    hook.switch_off();
    ASSERT_EQ(run(prepared), expected_);
  }
}

// A read ahead for the next pass may fail after the pass that asked for it has ended: the next pass
// must not inherit the error.
TEST_P(FaultyDisk, AnErrorBetweenPassesIsForgotten) {
  std::atomic<bool> bad = false;
  std::atomic<int> failures = 0;
  FaultHook hook([&](int, int64_t result) -> int64_t {
    if (!bad) return result;
    ++failures;
    return -EIO;
  });
  PreparedModel prepared = prepare(&hook, 4'000'000);  // slow, so that it is still reading ahead
  Pipeline& pipeline = prepared.pipeline();
  const auto pass = [&] {
    KvSequence sequence;
    EXPECT_TRUE(pipeline.cache().place(sequence, 2, 2) && pipeline.cache().reserve(sequence, 2));
    std::vector<MicroBatch> group(1);
    group[0].batch.append(0, std::vector<TokenId>{3, 4}, 2, LogitsOf::last_token);
    group[0].sequences = {&sequence};
    std::vector<float> result;
    pipeline.forward(group, [&](size_t, Rows logits) {
      result.assign(logits.data, logits.data + logits.width);
    });
    bad = true;  // while it reads ahead for the next pass
    pipeline.cache().release(sequence);
    return result;
  };
  const std::vector<float> first = pass();
  for (int i = 0; i < 400 && failures < 3; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_GE(failures, 3);
  let_loads_fail();
  hook.switch_off();
  EXPECT_EQ(pass(), first);
}

TEST_P(FaultyDisk, ShortAndInterruptedReadsAreCompleted) {
  FaultHook hook([](int call, int64_t result) -> int64_t {
    if (call % 4 == 0) return -EINTR;
    if (call % 4 == 1) return -EAGAIN;
    if (call % 4 == 2 && result > 5000) return result / 2;
    return result;
  });
  PreparedModel prepared = prepare(&hook);
  EXPECT_EQ(run(prepared), expected_);
}

TEST_P(FaultyDisk, ASlowDiskGivesTheSame) {
  PreparedModel prepared = prepare(nullptr, 50'000'000);
  EXPECT_EQ(run(prepared), expected_);
}

// A model whose files a test may change while it runs.
class CopiedModel {
 public:
  explicit CopiedModel(ReadMethod method)
      : test_(copied()),
        texts_(random_texts(random_, 3, test_.description.vocabulary)),
        prepared_(test_.prepare({.expert_slots = 2}, texts_.workload(), options(method))) {}

  std::vector<Logits> run() { return run_pipeline(prepared_.pipeline(), texts_, random_); }
  std::vector<Logits> resident() const { return run_resident(test_, texts_); }
  std::filesystem::path weights() const { return folder_ / "model.safetensors"; }

 private:
  std::filesystem::path copied() const {
    std::filesystem::copy(test_model("qwen3_moe"), folder_);
    return folder_;
  }
  static PipelineOptions options(ReadMethod method) {
    PipelineOptions options;
    options.disk.method = method;
    return options;
  }

  testing_files::ScratchFolder scratch_;
  std::filesystem::path folder_ = scratch_.path() / "model";
  TestModel test_;
  std::mt19937_64 random_{5};
  Texts texts_;
  PreparedModel prepared_;
};

TEST_P(FaultyDisk, AFileThatShrinksIsNamed) {
  CopiedModel model(GetParam());
  EXPECT_EQ(model.run(), model.resident());
  for (const uint64_t bytes : {uint64_t{20'000}, uint64_t{0}}) {
    std::filesystem::resize_file(model.weights(), bytes);
    for (int round = 0; round < 2; ++round) {
      try {
        model.run();
        FAIL() << "a file of " << bytes << " bytes was enough";
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::bad_model);
        EXPECT_NE(std::string(error.what()).find("model.safetensors"), std::string::npos);
      }
    }
  }
}

// Weights of the same size that somebody copied over the old ones would give other answers.
TEST_P(FaultyDisk, AFileThatIsRewrittenIsNamed) {
  CopiedModel model(GetParam());
  model.run();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // times of files have such steps
  {
    std::fstream file(model.weights(), std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(-1, std::ios::end);
    file.put('x');
  }
  for (int round = 0; round < 2; ++round) {
    EXPECT_NE(refusal([&] { model.run(); }).find("model.safetensors': changed on disk"),
              std::string::npos);
  }
}

struct Outcome {
  std::vector<TokenId> tokens;
  Finish finish = Finish::not_yet;
  std::string error;
  bool operator==(const Outcome&) const = default;
};

// Five requests to their ends, in the order in which they were made.
std::vector<Outcome> run_requests(Engine& engine, const Texts& texts) {
  std::vector<SequenceId> ids;
  for (const std::vector<TokenId>& tokens : texts.tokens) {
    ids.push_back(
        engine.submit({.prompt = tokens, .sampling = {}, .max_tokens = 4, .stop_tokens = {}}));
  }
  std::map<int32_t, Outcome> outcomes;
  while (!engine.idle()) {
    for (const Progress& progress : engine.step()) {
      Outcome& outcome = outcomes[progress.sequence.value];
      EXPECT_EQ(outcome.finish, Finish::not_yet);
      outcome.finish = progress.finish;
      outcome.error = progress.error;
      if (progress.finish != Finish::failed) outcome.tokens.push_back(progress.token);
    }
  }
  std::vector<Outcome> in_order;
  for (const SequenceId id : ids) in_order.push_back(outcomes[id.value]);
  return in_order;
}

TEST_P(FaultyDisk, TheEngineFailsTheGroupAndGoesOn) {
  Texts longer = texts_;
  longer.tokens[0].resize(30, 7);  // the workload has room for generated tokens
  longer.prompt[0] = 30;
  const auto prepare_longer = [&](FaultHook* hook) {
    PipelineOptions options;
    options.disk = {.method = GetParam(), .block_bytes = 16 * kKiB, .hook = hook};
    Workload workload = longer.workload();
    workload.tokens_per_sequence += 4;
    return test_.prepare({.expert_slots = 3, .micro_batch = 2, .micro_batches = 2}, workload,
                         options);
  };
  FaultHook counting([](int, int64_t result) { return result; });
  std::vector<Outcome> expected;
  {
    PreparedModel prepared = prepare_longer(&counting);
    Engine engine(prepared.pipeline());
    expected = run_requests(engine, longer);
  }
  const int count = counting.calls();
  for (int bad = 0; bad < count; bad += std::max(1, count / 5)) {
    SCOPED_TRACE(bad);
    FaultHook hook([&](int call, int64_t result) { return call >= bad ? -EIO : result; });
    PreparedModel prepared = prepare_longer(&hook);
    Engine engine(prepared.pipeline());
    const std::vector<Outcome> faulty = run_requests(engine, longer);
    let_loads_fail();
    for (size_t i = 0; i < faulty.size(); ++i) {
      if (faulty[i].finish == Finish::failed) {
        EXPECT_NE(faulty[i].error.find("safetensors"), std::string::npos) << faulty[i].error;
        ASSERT_LE(faulty[i].tokens.size(), expected[i].tokens.size());
        EXPECT_TRUE(std::equal(faulty[i].tokens.begin(), faulty[i].tokens.end(),
                               expected[i].tokens.begin()));
      } else {
        EXPECT_EQ(faulty[i], expected[i]);
      }
    }
    EXPECT_EQ(prepared.pipeline().cache().pages_in_use(), 0);
    hook.switch_off();
    ASSERT_EQ(run_requests(engine, longer), expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Methods, FaultyDisk,
                         ::testing::Values(ReadMethod::threads, ReadMethod::io_uring),
                         [](const auto& method) {
                           return method.param == ReadMethod::threads ? "threads" : "io_uring";
                         });

// The k-th call to the spill file fails, and all after it.
class FaultySpill : public SpillCalls {
 public:
  int posix_fallocate(int descriptor, off_t offset, off_t size) override {
    return full ? ENOSPC : SpillCalls::posix_fallocate(descriptor, offset, size);
  }
  ssize_t pwrite(int descriptor, const void* buffer, size_t size, off_t offset) override {
    if (out_of_memory) throw std::bad_alloc();
    return fails(writes++, bad_write) ? -1 : SpillCalls::pwrite(descriptor, buffer, size, offset);
  }
  ssize_t pread(int descriptor, void* buffer, size_t size, off_t offset) override {
    return fails(reads++, bad_read) ? -1 : SpillCalls::pread(descriptor, buffer, size, offset);
  }
  bool full = false;
  std::atomic<bool> out_of_memory = false;
  std::atomic<int> writes = 0;
  std::atomic<int> reads = 0;
  std::atomic<int> bad_write = INT32_MAX;
  std::atomic<int> bad_read = INT32_MAX;

 private:
  static bool fails(int call, int bad) {
    if (call < bad) return false;
    errno = EIO;
    return true;
  }
};

class FaultySpillTest : public ::testing::Test {
 protected:
  FaultySpillTest() : test_(test_model("qwen3_moe")) {
    std::mt19937_64 random(5);
    texts_ = random_texts(random, 5, test_.description.vocabulary, 40);
  }
  PreparedModel prepare() {
    PipelineOptions options;
    options.spill_folder = ::testing::TempDir();
    options.spill_calls = &calls_;
    const auto pages = static_cast<uint64_t>(PagedKvCache::pages_for(texts_.longest()));
    return test_.prepare(
        {.kv_bytes = pages * PagedKvCache::page_bytes(test_.description, DType::BF16),
         .micro_batch = 2,
         .micro_batches = 3},
        texts_.workload(), options);
  }

  TestModel test_;
  Texts texts_;
  FaultySpill calls_;
};

TEST_F(FaultySpillTest, AFullDiskIsSeenBeforeAnythingRuns) {
  calls_.full = true;
  try {
    prepare();
    FAIL() << "a spill file was made on a full disk";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::does_not_fit);
    EXPECT_NE(std::string(error.what()).find("spill file"), std::string::npos);
  }
}

TEST_F(FaultySpillTest, NoMemoryInALaneFailsTheGroup) {
  for (std::vector<TokenId>& tokens : texts_.tokens) tokens.resize(20, 7);
  texts_.prompt.assign(texts_.tokens.size(), 20);
  texts_.tokens[0].resize(30, 7);  // the plan has room for generated tokens
  PreparedModel prepared = prepare();
  texts_.tokens[0].resize(20);
  Engine engine(prepared.pipeline());
  const std::vector<Outcome> expected = run_requests(engine, texts_);
  calls_.out_of_memory = true;
  int failed = 0;
  for (const Outcome& outcome : run_requests(engine, texts_)) {
    if (outcome.finish == Finish::failed) ++failed;
  }
  EXPECT_GT(failed, 0);
  calls_.out_of_memory = false;
  EXPECT_EQ(run_requests(engine, texts_), expected);
}

TEST_F(FaultySpillTest, AFailedTransferFailsThePassAndTheNextIsRight) {
  const std::vector<Logits> expected = run_resident(test_, texts_);
  PreparedModel prepared = prepare();
  const auto run = [&] {
    std::mt19937_64 random(1);
    return run_pipeline(prepared.pipeline(), texts_, random);
  };
  ASSERT_EQ(run(), expected);
  const int writes = calls_.writes;
  const int reads = calls_.reads;
  ASSERT_GT(writes, 0);
  ASSERT_GT(reads, 0);
  const auto expect_failure = [&](std::atomic<int>& counter, std::atomic<int>& bad, int at) {
    counter = 0;
    bad = at;
    EXPECT_THROW(run(), Error) << at;
    bad = INT32_MAX;
    EXPECT_EQ(prepared.pipeline().cache().spilled_pages(), 0);
    ASSERT_EQ(run(), expected) << at;
  };
  for (int at = 0; at < writes; at += std::max(1, writes / 8)) {
    expect_failure(calls_.writes, calls_.bad_write, at);
  }
  for (int at = 0; at < reads; at += std::max(1, reads / 8)) {
    expect_failure(calls_.reads, calls_.bad_read, at);
  }
}

}  // namespace
}  // namespace klotski
