// Models with an encoder through the engine: requests together give the tokens that each gives
// alone, bit for bit, whatever the strategy, the group and the memory.

#include <gtest/gtest.h>

#include <map>

#include "base/error.h"
#include "engine/engine.h"
#include "engine/testing/models.h"
#include "experts/predictor.h"

namespace klotski {
namespace {

constexpr int64_t kGenerated = 9;

Request request_of(size_t number) {
  Request request{.prompt = {}, .sampling = {}, .max_tokens = kGenerated, .stop_tokens = {}};
  for (size_t i = 0; i < 1 + 11 * number % 37; ++i) {
    request.prompt.push_back(static_cast<TokenId>(3 + (number * 71 + i * i * 13) % 250));
  }
  if (number % 3 == 2) request.decoder_prompt = {17, 4};
  request.logprobs = 0;
  return request;
}

// The tokens of a request with the logarithms of their probabilities.
using Generated = std::vector<std::pair<TokenId, double>>;

class EncoderModels : public ::testing::TestWithParam<const char*> {
 protected:
  std::vector<Generated> run(const std::vector<Request>& requests, RunLimits limits,
                             const EngineOptions& options = {}) {
    limits.precision = Precision::f32;
    const Workload workload{
        .sequences = std::ssize(requests), .tokens_per_sequence = 64, .prompt_tokens = 48};
    PreparedModel prepared = model_.prepare(limits, workload);
    Engine engine(prepared.pipeline(), options);
    for (const Request& request : requests) engine.submit(request);
    std::vector<Generated> results(requests.size());
    while (!engine.idle()) {
      for (const Progress& progress : engine.step()) {
        EXPECT_NE(progress.finish, Finish::failed) << progress.error;
        if (progress.finish == Finish::failed) return results;
        results[static_cast<size_t>(progress.sequence.value)].emplace_back(
            progress.token, progress.logprobs->chosen);
      }
    }
    counters_ = engine.counters();
    return results;
  }

  TestModel model_{test_model(GetParam())};
  EngineCounters counters_;  // of the last run
};

TEST_P(EncoderModels, RequestsTogetherEqualEachAlone) {
  std::vector<Request> requests;
  std::vector<Generated> alone;
  for (size_t i = 0; i < 7; ++i) {
    requests.push_back(request_of(i));
    alone.push_back(run({requests.back()}, {}).front());
    EXPECT_EQ(std::ssize(alone.back()), kGenerated);
  }
  const int64_t most = most_units_of_layer(model_.description)[index_of(UnitKind::expert)];
  for (size_t number = 0; number < kStrategies; ++number) {
    const auto strategy = static_cast<Strategy>(number);
    for (const int64_t slots : {most, int64_t{2}}) {
      SCOPED_TRACE(testing::Message() << strategy_name(strategy) << ", " << slots << " buffers");
      EXPECT_EQ(run(requests, {.strategy = strategy,
                               .expert_slots = slots,
                               .micro_batch = 2,
                               .micro_batches = properties_of(strategy).one_micro_batch ? 1 : 2}),
                alone);
    }
  }
}

// Inputs that begin alike share nothing, since each position of an encoder sees all others; a
// sequence that is preempted is encoded anew.
TEST_P(EncoderModels, AServersRulesKeepTheTokens) {
  std::vector<Request> requests;
  std::vector<Generated> alone;
  for (TokenId last = 5; last < 11; ++last) {
    Request& request = requests.emplace_back(request_of(1));
    request.prompt.assign(40, 9);
    request.prompt.back() = last;
    alone.push_back(run({request}, {}).front());
  }
  // Three pages of 16 positions for an input, a fourth for what is generated, for two sequences.
  const RunLimits few_pages{
      .kv_bytes = 7 * PagedKvCache::page_bytes(model_.description, kv_type(Precision::f32))};
  EXPECT_EQ(run(requests, few_pages,
                {.pass_rows = 4, .booking = KvBooking::as_it_grows, .prefix_cache = true}),
            alone);
  EXPECT_EQ(counters_.prefix.tokens, 0);
  EXPECT_GT(counters_.preemptions, 0);
}

TEST_P(EncoderModels, AnInputLongerThanThePlansRowsIsRefused) {
  PreparedModel prepared =
      model_.prepare({}, {.sequences = 1, .tokens_per_sequence = 400, .prompt_tokens = 20});
  Engine engine(prepared.pipeline());
  const auto most = static_cast<size_t>(prepared.policy().group.micro_batch_rows);
  Request request = request_of(1);
  request.prompt.assign(most + 1, 5);
  try {
    engine.submit(request);
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::does_not_fit);
    EXPECT_NE(std::string(error.what()).find("in one piece"), std::string::npos) << error.what();
  }
  request.prompt.assign(most, 5);
  engine.submit(request);
}

INSTANTIATE_TEST_SUITE_P(Models, EncoderModels, ::testing::Values("switch", "nllb_moe"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace klotski
