// Speculative decoding changes no token: random requests with drafts beside the same ones without.

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "base/testing.h"
#include "engine/engine.h"
#include "engine/testing/answers.h"
#include "engine/testing/device_runs.h"
#include "engine/testing/models.h"

namespace klotski {
namespace {

using Answers = std::map<int32_t, Answer>;

// Prompts of few kinds of tokens, in which most places look like earlier ones.
std::vector<Request> random_requests(std::mt19937_64& random, int64_t count) {
  std::vector<Request> requests;
  for (int64_t i = 0; i < count; ++i) {
    std::vector<TokenId> prompt(1 + random() % 24);
    for (TokenId& token : prompt) token = static_cast<TokenId>(5 + random() % 3);
    const uint64_t seed = random() % 3;
    Request request{.prompt = std::move(prompt),
                    .sampling = {.temperature = seed == 0 ? 0.0 : 0.3,
                                 .frequency_penalty = seed == 2 ? 0.1 : 0.0,
                                 .seed = seed},
                    .max_tokens = 1 + static_cast<int64_t>(random() % 60),
                    .stop_tokens = {3}};
    if (random() % 3 == 0) request.logprobs = 1;
    // Texts whose next tokens are known, as bench takes them, are foretold where they repeat.
    if (random() % 3 == 0) {
      for (int64_t j = 0; j < request.max_tokens; ++j) {
        request.given_tokens.push_back(static_cast<TokenId>(5 + j % 4));
      }
    }
    requests.push_back(std::move(request));
  }
  return requests;
}

// The answers, with requests coming while others run, and their drafts.
struct Served {
  Answers answers;
  std::map<int32_t, DraftCounts> drafts;
};

Served served_by(Engine& engine, const std::vector<Request>& requests) {
  Served served;
  size_t sent = 0;
  while (sent < requests.size() || !engine.idle()) {
    if (sent < requests.size()) engine.submit(requests[sent++]);
    for (const Progress& progress : engine.step()) {
      Answer& answer = served.answers[progress.sequence.value];
      EXPECT_EQ(answer.finish, Finish::not_yet) << "no token behind the last one";
      add_to(answer, progress);
      served.drafts[progress.sequence.value] = progress.drafts;
    }
  }
  return served;
}

// The work that engines of these tests are planned for.
Workload workload_of(int64_t sequences) {
  return {.sequences = sequences, .tokens_per_sequence = 96, .prompt_tokens = 24};
}

struct Setting {
  int64_t draft_tokens = 4;
  int64_t pages = 64;
  int64_t micro_batch = 3;
  int64_t micro_batches = 2;
  RunLimits limits{};
  EngineOptions options{.drafts_unjudged = true};
  std::filesystem::path spill_folder{};
};

class SpeculationTest : public ::testing::Test {
 protected:
  void open(const char* name) { model_.emplace(test_model(name)); }

  Engine engine(const Setting& setting) {
    RunLimits limits = setting.limits;
    limits.strategy = Strategy::klotski;
    limits.kv_bytes = static_cast<uint64_t>(setting.pages) *
                      PagedKvCache::page_bytes(model_->description, kv_type(limits.precision));
    limits.micro_batch = setting.micro_batch;
    limits.micro_batches = setting.micro_batches;
    limits.draft_tokens = setting.draft_tokens;
    const Workload workload = workload_of(setting.micro_batch * setting.micro_batches);
    PipelineOptions pipeline;
    pipeline.spill_folder = setting.spill_folder;
    Target target{.ops = cpu_processor()};
    prepared_ = std::make_unique<PreparedModel>(
        model_->description, model_->checkpoint, target,
        model_->plan(limits, workload, pipeline, cpu_processor()), pipeline);
    return Engine(prepared_->pipeline(), setting.options);
  }

  std::optional<TestModel> model_;
  std::unique_ptr<PreparedModel> prepared_;
  std::mt19937_64 random_{17};
};

class SpeculatingModels : public SpeculationTest,
                          public ::testing::WithParamInterface<const char*> {};

INSTANTIATE_TEST_SUITE_P(Models, SpeculatingModels,
                         ::testing::Values("mixtral", "deepseek_v3", "gpt_oss", "llama4_text"),
                         [](const auto& named) { return std::string(named.param); });

TEST_P(SpeculatingModels, TokensAreThoseOfARunWithoutDrafts) {
  open(GetParam());
  DraftCounts all;
  const std::filesystem::path spilled = ::testing::TempDir();
  const EngineOptions grows{.pass_rows = 12,
                            .booking = KvBooking::as_it_grows,
                            .prefix_cache = true,
                            .drafts_unjudged = true};
  const EngineOptions judged{.pass_rows = 20};
  const std::vector<Setting> settings = {
      {.limits = {.precision = Precision::f32}},
      {.pages = 16, .options = grows},
      {.pages = 6, .spill_folder = spilled},
      {.draft_tokens = 9, .micro_batch = 6, .micro_batches = 1, .options = judged},
      {.limits = {.attention_sinks = 2, .attention_window = 18}}};
  for (const Setting& setting : settings) {
    for (int trial = 0; trial < trials(5); ++trial) {
      const std::vector<Request> requests = random_requests(random_, 8);
      Setting plain = setting;
      plain.draft_tokens = 0;
      Engine without = engine(plain);
      const Answers expected = served_by(without, requests).answers;
      Engine with = engine(setting);
      const Served served = served_by(with, requests);
      ASSERT_EQ(served.answers, expected);
      const DraftCounts counts = with.counters().drafts;
      DraftCounts of_sequences;
      for (const auto& [id, drafts] : served.drafts) of_sequences += drafts;
      EXPECT_EQ(of_sequences, counts);
      all += counts;
      const PagedKvCache& cache = prepared_->pipeline().cache();
      EXPECT_EQ(cache.free_pages(false), cache.capacity_pages()) << "nothing stays booked";
      EXPECT_EQ(cache.spilled_pages(), 0);
    }
  }
  EXPECT_GT(all.accepted, 25 * trials(5));
  EXPECT_GT(all.drafted - all.accepted, 25 * trials(5)) << "many are taken back";
}

// Passes of a text that repeats itself, with drafts that are all right: a fifth of them.
TEST_F(SpeculationTest, ARepetitionTakesFewPasses) {
  open("mixtral");
  Request request{
      .prompt = {5, 6, 7, 5, 6, 7}, .sampling = {}, .max_tokens = 40, .stop_tokens = {}};
  for (int64_t i = 0; i < request.max_tokens; ++i) {
    request.given_tokens.push_back(static_cast<TokenId>(5 + i % 3));
  }
  Engine with = engine({});
  const Served served = served_by(with, {request});
  EXPECT_EQ(served.answers.at(0).tokens, request.given_tokens);
  EXPECT_EQ(with.counters().drafts, (DraftCounts{.drafted = 31, .accepted = 31}));
  EXPECT_EQ(served.drafts.at(0), with.counters().drafts);
  // The prompt gives a token, seven passes five each, and the last one what is left.
  const PipelineReport report = prepared_->pipeline().report();
  EXPECT_EQ(report.passes, 9);
  EXPECT_EQ(report.tokens, 6 + 39) << "every token but the last is computed once";
}

// Six pages, of which the older sequence comes to need a fifth when the younger one has ended. Its
// drafts would need that page earlier: they are left out, and the younger one keeps its two.
TEST_F(SpeculationTest, NobodyGivesWayToDrafts) {
  open("mixtral");
  const auto repetition = [](int64_t prompt, int64_t max_tokens) {
    Request request{.prompt = {}, .sampling = {}, .max_tokens = max_tokens, .stop_tokens = {}};
    for (int64_t i = 0; i < prompt + max_tokens; ++i) {
      (i < prompt ? request.prompt : request.given_tokens)
          .push_back(static_cast<TokenId>(5 + i % 3));
    }
    return request;
  };
  for (const int64_t draft_tokens : {0, 12}) {
    Engine grows =
        engine({.draft_tokens = draft_tokens,
                .pages = 6,
                .options = {.booking = KvBooking::as_it_grows, .drafts_unjudged = true}});
    grows.submit(repetition(42, 50));
    grows.submit(repetition(6, 20));
    while (!grows.idle()) grows.step();
    EXPECT_EQ(grows.counters().preemptions, 0) << draft_tokens << " drafts";
    EXPECT_EQ(grows.counters().drafts.accepted > 20, draft_tokens > 0);
  }
}

// Nothing is drafted where a position cannot be taken back or would come out otherwise.
TEST_F(SpeculationTest, SomeModelsDraftNothing) {
  for (const char* name : {"variants/qwen3_next", "switch", "variants/mixtral_dynamic"}) {
    open(name);
    Engine with = engine({});
    EXPECT_EQ(prepared_->pipeline().policy().group.draft_tokens, 0) << "no memory for them";
    served_by(with, random_requests(random_, 4));
    EXPECT_EQ(with.counters().drafts, DraftCounts{}) << name;
  }
}

// On a device, with random slots, lent ones among them, divisions of work and places of keys and
// values: the engine beside one on the CPU that drafts nothing.
class SpeculatingDevices : public DeviceRuns {
 protected:
  SpeculatingDevices() : DeviceRuns(/*in_streams=*/true) {}

  RunLimits random_drafting(const Workload& workload) {
    RunLimits limits = random_limits();
    limits.draft_tokens = between(random_, 1, 6);
    if (random_() % 3 == 0) limits.strategy = Strategy::hybrid;
    if (random_() % 4 == 0) limits.cpu_attention = true;
    if (!limits.cpu_attention && random_() % 3 == 0) {
      limits.kv_bytes =
          (1 + random_() % 2) *
          sequence_cache_bytes(test_.description, limits.precision, workload.tokens_per_sequence);
    }
    return limits;
  }
};

INSTANTIATE_TEST_SUITE_P(Models, SpeculatingDevices,
                         ::testing::Values("mixtral", "deepseek_v3", "gpt_oss"),
                         [](const auto& named) { return std::string(named.param); });

TEST_P(SpeculatingDevices, TokensAreThoseOfTheCpuWithoutDrafts) {
  DraftCounts all;
  for (int trial = 0; trial < trials(6); ++trial) {
    const std::vector<Request> requests = random_requests(random_, 6);
    const Workload workload = workload_of(6);
    const RunLimits limits = random_drafting(workload);
    Target cpu{.ops = reference_processor()};
    PreparedModel resident(plain_.description, plain_.checkpoint, cpu,
                           plain_.plan({.precision = limits.precision}, workload));
    Engine without(resident.pipeline());
    const Answers expected = served_by(without, requests).answers;
    RunPlan chosen = plan(limits, workload);
    take_slots_away(chosen);
    share_experts(chosen.policy);
    PreparedModel prepared(test_.description, test_.checkpoint, target_, chosen, options_);
    Engine with(prepared.pipeline(), {.drafts_unjudged = true});
    ASSERT_EQ(served_by(with, requests).answers, expected) << "trial " << trial;
    EXPECT_LE(prepared.compute_tier().peak_bytes(), chosen.memory.limit_bytes);
    all += with.counters().drafts;
  }
  EXPECT_GT(all.accepted, trials(6));
  EXPECT_GT(all.drafted - all.accepted, trials(6)) << "some are taken back";
}

}  // namespace
}  // namespace klotski
