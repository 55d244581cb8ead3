#include "engine/engine.h"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <random>

#include "base/error.h"
#include "engine/testing/models.h"

namespace klotski {
namespace {

struct Finished {
  std::vector<TokenId> tokens;
  Finish finish = Finish::not_yet;
  bool operator==(const Finished&) const = default;
};

std::map<int32_t, Finished> run_all(Engine& engine) {
  std::map<int32_t, Finished> results;
  while (!engine.idle()) {
    for (const Progress& progress : engine.step()) {
      Finished& result = results[progress.sequence.value];
      result.tokens.push_back(progress.token);
      result.finish = progress.finish;
    }
  }
  return results;
}

class EngineTest : public ::testing::Test {
 protected:
  EngineTest() : model_(test_model("mixtral")) {}

  // An engine with `page_count` KV pages that computes `rows` rows of a micro-batch at once.
  Engine engine(int64_t page_count, int64_t rows = 512, RunLimits limits = {},
                int64_t decode_batch = 0) {
    limits.precision = Precision::f32;  // the reference continuation's
    limits.kv_bytes = static_cast<uint64_t>(page_count) *
                      PagedKvCache::page_bytes(model_.description, kv_type(limits.precision));
    if (!limits.micro_batch) limits.micro_batch = std::min<int64_t>(rows, 4);
    if (!limits.micro_batches) limits.micro_batches = 2;
    const Workload workload{.sequences = 8,
                            .tokens_per_sequence = page_count * PagedKvCache::kPageTokens,
                            .prompt_tokens = std::max<int64_t>(1, rows / *limits.micro_batch)};
    Target target{.ops = reference_processor()};
    RunPlan plan = model_.plan(limits, workload);
    plan.policy.group.decode_batch = decode_batch;
    prepared_.push_back(
        std::make_unique<PreparedModel>(model_.description, model_.checkpoint, target, plan));
    return Engine(prepared_.back()->pipeline());
  }
  static Request request(std::vector<TokenId> prompt, int64_t max_tokens, uint64_t seed = 0) {
    return {.prompt = std::move(prompt),
            .sampling = {.temperature = seed == 0 ? 0.0 : 0.9, .seed = seed},
            .max_tokens = max_tokens,
            .stop_tokens = {}};
  }

  TestModel model_;
  std::vector<std::unique_ptr<PreparedModel>> prepared_;
};

// The reference continuation of this prompt, from tests/data/models/mixtral/reference.json.
const std::vector<TokenId> kPrompt = {77, 204, 89, 57, 132, 27, 12};
const std::vector<TokenId> kGreedy = {237, 73, 142, 142, 97, 142, 142, 145, 117, 237};

TEST_F(EngineTest, ContinuesGreedilyAsTheReferenceDoes) {
  Engine one = engine(10);
  one.submit(request(kPrompt, 10));
  const auto results = run_all(one);
  EXPECT_EQ(results.at(0).tokens, kGreedy);
  EXPECT_EQ(results.at(0).finish, Finish::length);
}

// While all sequences decode, micro-batches are computed as fewer, larger ones: fewer calls, equal
// tokens.
TEST_F(EngineTest, MergedMicroBatchesGenerateTheSame) {
  const RunLimits limits{.micro_batch = 2, .micro_batches = 4};
  std::array<std::map<int32_t, Finished>, 3> results;
  std::array<int64_t, 3> calls{};
  for (size_t i = 0; i < results.size(); ++i) {
    Engine one = engine(40, 512, limits, std::array<int64_t, 3>{0, 4, 100}[i]);
    for (uint64_t seed = 0; seed < 7; ++seed) {  // some greedy, some not, of different lengths
      const auto length = static_cast<std::ptrdiff_t>(1 + seed % 3);
      one.submit(request({kPrompt.begin(), kPrompt.begin() + length},
                         static_cast<int64_t>(6 + seed % 4), seed % 3 == 0 ? 0 : seed));
    }
    results[i] = run_all(one);
    calls[i] = prepared_.back()->pipeline().report().totals.lane(Lane::kCompute).spans;
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
  EXPECT_LT(calls[1], calls[0]);
  EXPECT_LT(calls[2], calls[1]);
}

// Logprobs of one request change no token of any, and the greedy token is the likeliest.
TEST_F(EngineTest, LogprobsComeWhereTheyAreAskedFor) {
  Engine one = engine(20);
  Request asking = request(kPrompt, 10);
  asking.logprobs = 3;
  const SequenceId id = one.submit(std::move(asking));
  one.submit(request(kPrompt, 10));
  EXPECT_EQ(one.waiting(), 2);
  std::map<int32_t, std::vector<TokenId>> tokens;
  while (!one.idle()) {
    for (const Progress& progress : one.step()) {
      tokens[progress.sequence.value].push_back(progress.token);
      ASSERT_EQ(progress.logprobs.has_value(), progress.sequence == id);
      if (!progress.logprobs) continue;
      ASSERT_EQ(progress.logprobs->top.size(), 3U);
      EXPECT_EQ(progress.logprobs->top[0].token, progress.token);
      EXPECT_EQ(progress.logprobs->top[0].logprob, progress.logprobs->chosen);
      EXPECT_LT(progress.logprobs->chosen, 0.0);
    }
    EXPECT_EQ(one.waiting(), 0);
  }
  EXPECT_EQ(tokens[0], kGreedy);
  EXPECT_EQ(tokens[1], kGreedy);
}

TEST_F(EngineTest, StopsAtAStopToken) {
  Engine one = engine(10);
  Request stopping = request(kPrompt, 10);
  stopping.stop_tokens = {142};
  one.submit(std::move(stopping));
  const auto results = run_all(one);
  EXPECT_EQ(results.at(0).tokens, (std::vector<TokenId>{237, 73, 142}));
  EXPECT_EQ(results.at(0).finish, Finish::stop_token);
}

TEST_F(EngineTest, StopsWhenThePositionsAreUsedUp) {
  Engine one = engine(40);
  one.submit(request(std::vector<TokenId>(500, 3), 100));
  const auto results = run_all(one);
  EXPECT_EQ(results.at(0).tokens.size(), 12u);
  EXPECT_EQ(results.at(0).finish, Finish::length);
}

TEST_F(EngineTest, RefusesWhatCanNeverRun) {
  Engine one = engine(2);
  const auto kind_of = [&](Request bad) {
    try {
      one.submit(std::move(bad));
    } catch (const Error& error) {
      return error.kind();
    }
    return ErrorKind::internal;
  };
  EXPECT_EQ(kind_of(request({}, 5)), ErrorKind::usage);
  EXPECT_EQ(kind_of(request({256}, 5)), ErrorKind::usage);
  EXPECT_EQ(kind_of(request({-1}, 5)), ErrorKind::usage);
  EXPECT_EQ(kind_of(request({1}, 0)), ErrorKind::usage);
  EXPECT_EQ(kind_of(request(std::vector<TokenId>(512, 1), 5)), ErrorKind::usage);
  EXPECT_EQ(kind_of(request({1}, 40)), ErrorKind::does_not_fit);
  EXPECT_TRUE(one.idle());
}

TEST_F(EngineTest, APromptIsNotHeldUpByDecoding) {
  Engine one = engine(200, 4);
  for (int i = 0; i < 6; ++i) one.submit(request({5}, 400));
  one.step();
  one.step();
  const SequenceId late = one.submit(request(std::vector<TokenId>(8, 3), 1));
  for (int step = 0; step < 12; ++step) {
    for (const Progress& progress : one.step()) {
      if (progress.sequence == late) return;
    }
  }
  FAIL() << "eight tokens of a prompt took more than twelve steps";
}

// Random requests (greedy and sampled) under random limits: whenever a request is admitted,
// wherever it is split and whichever requests run with it, its result is bit for bit that of the
// request alone.
TEST_F(EngineTest, ResultsDoNotDependOnTheCompany) {
  std::mt19937 random(3);
  const auto below = [&](int64_t n) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(n));
  };
  std::vector<Request> requests;
  std::vector<Finished> alone;
  for (int i = 0; i < 12; ++i) {
    std::vector<TokenId> prompt(static_cast<size_t>(1 + below(50)));
    for (TokenId& token : prompt) token = static_cast<TokenId>(below(256));
    requests.push_back(request(prompt, 1 + below(20), static_cast<uint64_t>(i % 3)));
    Engine one = engine(10);
    one.submit(requests.back());
    alone.push_back(run_all(one).at(0));
  }
  for (int trial = 0; trial < 8; ++trial) {
    RunLimits limits{.strategy = static_cast<Strategy>(below(kStrategies)),
                     .expert_slots = 1 + below(32),
                     .micro_batch = 1 + below(8),
                     .micro_batches = 1 + below(4)};
    Engine many = engine(5 + below(40), 1 + below(60), limits);
    std::vector<size_t> order(requests.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::shuffle(order.begin(), order.end(), random);
    for (const size_t i : order) many.submit(requests[i]);
    const auto results = run_all(many);
    for (size_t i = 0; i < order.size(); ++i) {
      EXPECT_EQ(results.at(static_cast<int32_t>(i)), alone[order[i]]);
    }
  }
}

TEST_F(EngineTest, AStepOfAnIdleEngineDoesNothing) {
  Engine one = engine(10);
  const Pipeline& pipeline = prepared_.back()->pipeline();
  EXPECT_TRUE(one.step().empty());
  EXPECT_EQ(pipeline.report().passes, 0);
  one.submit(request(kPrompt, 1));
  run_all(one);
  const int64_t passes = pipeline.report().passes;
  EXPECT_TRUE(one.step().empty());
  EXPECT_EQ(pipeline.report().passes, passes);
  one.submit(request(kPrompt, 10));
  EXPECT_EQ(run_all(one).at(1).tokens, kGreedy) << "as if there had been no such step";
}

TEST_F(EngineTest, CancelGivesTheRoomBack) {
  Engine one = engine(2);
  const SequenceId first = one.submit(request(kPrompt, 20));
  const SequenceId second = one.submit(request(kPrompt, 10));
  one.step();
  one.cancel(first);
  const auto results = run_all(one);
  EXPECT_EQ(results.size(), 1u);
  EXPECT_EQ(results.at(second.value).tokens, kGreedy);
}

}  // namespace
}  // namespace klotski
