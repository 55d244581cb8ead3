// A request has the same tokens and the same probabilities, bit for bit, whoever is served with it:
// random arrivals and cancellations, prompts in slices, preemptions, pages shared with others.

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "base/testing.h"
#include "engine/engine.h"
#include "engine/testing/answers.h"
#include "engine/testing/models.h"

namespace klotski {
namespace {

// Where a model is served: its precision, its memory for keys and values, its group.
struct Setting {
  Precision precision;
  int64_t pages;
  int64_t micro_batch;
  int64_t micro_batches;
  int64_t pass_rows;
};

class CompanyTest : public ::testing::TestWithParam<const char*> {
 protected:
  CompanyTest() : model_(test_model(GetParam())) {}

  int64_t below(int64_t bound) {
    return static_cast<int64_t>(random_() % static_cast<uint64_t>(bound));
  }

  Engine engine(const Setting& setting, const EngineOptions& options) {
    const RunLimits limits{
        .strategy = Strategy::klotski,
        .precision = setting.precision,
        .kv_bytes = static_cast<uint64_t>(setting.pages) *
                    PagedKvCache::page_bytes(model_.description, kv_type(setting.precision)),
        .micro_batch = setting.micro_batch,
        .micro_batches = setting.micro_batches};
    const Workload workload{.sequences = setting.micro_batch * setting.micro_batches,
                            .tokens_per_sequence = 112,
                            .prompt_tokens = 24};
    Target target{.ops = cpu_processor()};
    prepared_ = std::make_unique<PreparedModel>(model_.description, model_.checkpoint, target,
                                                model_.plan(limits, workload, {}, cpu_processor()));
    return Engine(prepared_->pipeline(), options);
  }

  // Requests that begin like one of three texts and go on as they like.
  Request random_request() {
    std::vector<TokenId> prompt;
    const int64_t text = below(3);
    const int64_t common = below(40);
    for (int64_t i = 0; i < common; ++i)
      prompt.push_back(static_cast<TokenId>(i * (5 + text) % 200));
    const int64_t own = 1 + below(12);
    for (int64_t i = 0; i < own; ++i) prompt.push_back(static_cast<TokenId>(below(200)));
    const auto seed = static_cast<uint64_t>(below(4));
    Request request{.prompt = std::move(prompt),
                    .sampling = {.temperature = seed == 0 ? 0.0 : 0.9,
                                 .frequency_penalty = seed == 2 ? 0.5 : 0.0,
                                 .seed = seed},
                    .max_tokens = 1 + below(45),
                    .stop_tokens = {3}};
    if (below(3) == 0) request.logprobs = 2;
    return request;
  }

  Answer alone(Engine& engine, const Request& request) {
    Answer answer;
    engine.submit(request);
    while (!engine.idle()) {
      for (const Progress& progress : engine.step()) add_to(answer, progress);
    }
    return answer;
  }

  // Requests that come while others run and are sometimes cancelled; those that end are compared.
  void serve_some(Engine& engine) {
    struct Served {
      size_t request;
      Answer answer;
    };
    std::map<SequenceId, Served> served;
    int64_t to_come = 2 + below(5);
    while (to_come > 0 || !engine.idle()) {
      while (to_come > 0 && below(3) > 0) {
        const auto request = static_cast<size_t>(below(std::ssize(requests_)));
        served[engine.submit(requests_[request])] = {request, {}};
        --to_come;
      }
      if (!served.empty() && below(40) == 0) {
        const auto cancelled = std::next(served.begin(), below(std::ssize(served)));
        engine.cancel(cancelled->first);
        served.erase(cancelled);
      }
      for (const Progress& progress : engine.step()) {
        Served& one = served.at(progress.sequence);
        add_to(one.answer, progress);
        if (progress.finish == Finish::not_yet) continue;
        ASSERT_EQ(one.answer, answers_[one.request]) << "request " << one.request;
        served.erase(progress.sequence);
      }
    }
    EXPECT_TRUE(served.empty());
  }

  TestModel model_;
  std::mt19937 random_{11};
  std::vector<Request> requests_;
  std::vector<Answer> answers_;
  std::unique_ptr<PreparedModel> prepared_;
};

INSTANTIATE_TEST_SUITE_P(Models, CompanyTest, ::testing::Values("mixtral", "deepseek_v3"),
                         [](const auto& named) { return std::string(named.param); });

// 1,000 trials for each of two kinds of attention.
TEST_P(CompanyTest, AnswersAreThoseOfRequestsAlone) {
  const int of_each_setting = trials(250);
  const std::vector<Setting> settings = {{Precision::f32, 9, 2, 2, 20},
                                         {Precision::f32, 14, 10, 1, 24},
                                         {Precision::bf16, 8, 4, 2, 5},
                                         {Precision::bf16, 18, 5, 2, 0}};
  EngineCounters all;
  for (const Setting& setting : settings) {
    requests_.clear();
    answers_.clear();
    {
      Engine one = engine({setting.precision, 40, 1, 1, 0}, {});
      for (int i = 0; i < 40; ++i) {
        requests_.push_back(random_request());
        answers_.push_back(alone(one, requests_.back()));
      }
    }
    Engine many = engine(
        setting,
        {.pass_rows = setting.pass_rows, .booking = KvBooking::as_it_grows, .prefix_cache = true});
    for (int trial = 0; trial < of_each_setting && !HasFatalFailure(); ++trial) serve_some(many);
    const PagedKvCache& cache = prepared_->pipeline().cache();
    EXPECT_EQ(cache.free_pages(false), cache.capacity_pages()) << "nothing stays booked";
    EXPECT_LE(cache.pages_in_use(), cache.capacity_pages());
    const EngineCounters counters = many.counters();
    all.preemptions += counters.preemptions;
    all.prefix.hits += counters.prefix.hits;
    all.prefix.tokens += counters.prefix.tokens;
  }
  EXPECT_GT(all.preemptions, of_each_setting / 5);
  EXPECT_GT(all.prefix.hits, 2 * of_each_setting);
  EXPECT_GE(all.prefix.tokens, all.prefix.hits * PagedKvCache::kPageTokens);
  RecordProperty("preemptions", static_cast<int>(all.preemptions));
  RecordProperty("prefix_hits", static_cast<int>(all.prefix.hits));
  RecordProperty("prefix_tokens", static_cast<int>(all.prefix.tokens));
}

}  // namespace
}  // namespace klotski
