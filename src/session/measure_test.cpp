#include "session/measure.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/testing.h"
#include "experts/predictor.h"
#include "session/sample_text.h"
#include "session/testing.h"
#include "weights/testing.h"

namespace klotski {
namespace {

TEST(MeasureTest, WorkIsCutFromAText) {
  const Tokenizer tokenizer = Tokenizer::load(testing::tiny_model()->folder);
  const std::vector<TokenId> all = tokenizer.encode(sample_text(), {});
  const MeasuredWork work = work_from_text(tokenizer, sample_text(), 5, 12, 3);
  ASSERT_EQ(work.prompts.size(), 5u);
  EXPECT_EQ(work.prompts.front(), std::vector<TokenId>(all.begin(), all.begin() + 12));
  for (const auto& prompt : work.prompts) EXPECT_EQ(prompt.size(), 12u);
  EXPECT_NE(work.prompts[1], work.prompts[4]);
  ModelDescription model;
  const Workload workload = work.workload(model);
  EXPECT_EQ(workload.sequences, 5);
  EXPECT_EQ(workload.tokens_per_sequence, 15);
  EXPECT_EQ(workload.generated_tokens, 3);
  model.encoder.emplace();
  EXPECT_EQ(work.workload(model).tokens_per_sequence, 16) << "the decoder's first token";
  EXPECT_NE(refusal([&] { work_from_text(tokenizer, "a", 1, 1000, 1); }).find("--text"),
            std::string::npos);
}

TEST(MeasureTest, AnswersMayBeTheTextThatFollowsAPrompt) {
  const Tokenizer tokenizer = Tokenizer::load(testing::tiny_model()->folder);
  const std::vector<TokenId> all = tokenizer.encode(sample_text(), {});
  const MeasuredWork work = work_from_text(tokenizer, sample_text(), 3, 12, 4, Answers::text);
  ASSERT_EQ(work.continuations.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    std::vector<TokenId> stretch = work.prompts[i];
    stretch.insert(stretch.end(), work.continuations[i].begin(), work.continuations[i].end());
    EXPECT_EQ(stretch.size(), 16u);
    EXPECT_NE(std::search(all.begin(), all.end(), stretch.begin(), stretch.end()), all.end()) << i;
  }
  EXPECT_EQ(work_from_text(tokenizer, "a b", 1, 1, 1, Answers::text).prompts.size(), 1u);
  EXPECT_NE(refusal([&] {
              work_from_text(tokenizer, "a", 1, 1, 1000, Answers::text);
            }).find("and its answer"),
            std::string::npos);
}

TEST(MeasureTest, RunsOfOneWorkGiveTheSameTokens) {
  const testing_files::ScratchFolder scratch;
  const testing_files::ScopedEnvironment cache("KLOTSKI_CACHE", scratch.path().c_str());
  SessionOptions options;
  options.device = "cpu";
  options.limits.micro_batch = 2;
  options.limits.micro_batches = 2;
  Session session(testing::tiny_model(), options);
  const Tokenizer tokenizer = Tokenizer::load(session.model().folder);
  for (const int64_t generate :
       {int64_t{3}, int64_t{20}}) {  // fewer than the sample takes, and more
    const MeasuredWork work = work_from_text(tokenizer, sample_text(), 4, 10, generate);
    const LearntChoices learnt = learn_choices(session, work);
    const Measurement first = measure(session, work, learnt);
    EXPECT_TRUE(session.loaded());
    const Measurement second = measure(session, work, learnt);
    EXPECT_EQ(first.generated, second.generated);
    EXPECT_EQ(first.generated, testing::generate(session, work.prompts, generate));
    EXPECT_EQ(first.generated_tokens, 4 * generate);
    EXPECT_EQ(first.prompt_tokens, 40);
    EXPECT_EQ(first.decoded_tokens, 4 * (generate - 1));
    EXPECT_GT(first.tokens_per_second(), 0.0);
    ASSERT_TRUE(first.predicted.has_value());
    EXPECT_GT(first.predicted->tokens_per_second(), 0.0);
    EXPECT_GT(first.load_seconds, 0.0);
    EXPECT_EQ(first.report.totals.lane(Lane::kDiskRead).bytes, 0u) << "all was read before";
  }
}

// Every sequence takes the recorded tokens and goes to the recorded experts, in groups of any size.
TEST(MeasureTest, SequencesFollowRecordedRouting) {
  const testing_files::ScratchFolder scratch;
  const testing_files::ScopedEnvironment cache("KLOTSKI_CACHE", scratch.path().c_str());
  SessionOptions options;
  options.device = "cpu";
  const RoutingTraceShape shape = routing_shape(testing::tiny_model()->description);
  TracedSequences stretches{.shape = shape, .sequences = std::vector<TracedSequence>(3)};
  for (size_t s = 0; s < 3; ++s) {
    TracedSequence& stretch = stretches.sequences[s];
    for (int64_t token = 0; token < 7; ++token) {
      stretch.tokens.push_back(static_cast<TokenId>(10 * s) + static_cast<TokenId>(token));
      for (const RoutedLayer& layer : shape.layers) {
        for (int64_t k = 0; k < layer.top_k; ++k) {
          stretch.choices.push_back(
              static_cast<uint16_t>((static_cast<int64_t>(s) + token + k) % layer.experts));
        }
      }
    }
  }
  const auto routing = std::make_shared<RecordedRouting>(stretches);
  options.pipeline.recorded_routing = routing;
  const MeasuredWork work = work_from_routing(*routing, 3, 4);
  EXPECT_EQ(work.generate, 3);
  for (const int64_t micro_batches : {int64_t{1}, int64_t{2}}) {
    options.limits.micro_batch = 2;
    options.limits.micro_batches = micro_batches;
    Session session(testing::tiny_model(), options);
    const Measurement found = measure(session, work, learn_choices(session, work));
    EXPECT_EQ(found.generated, work.continuations);
    // The last pass computed the token before the last of each sequence that was in it.
    const GroupChoices& choices = session.pipeline().choices();
    const int64_t first = 3 - choices.tokens();  // sequences before it had ended
    for (size_t layer = 0; layer < shape.layers.size(); ++layer) {
      std::set<std::vector<ExpertId>> chosen;
      std::set<std::vector<ExpertId>> expected;
      for (int64_t row = 0; row < choices.tokens(); ++row) {
        const auto here = choices.token(layer, row);
        std::vector<ExpertId> there;
        for (const uint16_t e : routing->choices(first + row, 5, shape.layers[layer].layer)) {
          there.emplace_back(e);
        }
        chosen.emplace(here.begin(), here.end());
        expected.insert(there);
      }
      EXPECT_EQ(chosen, expected);
    }
  }
}

TEST(MeasureTest, AClockTellsDecodingFromPrompts) {
  PassClock clock;
  clock.pass(false, 1);  // a prompt, which gives its first token
  EXPECT_EQ(clock.decoded_tokens(), 0);
  EXPECT_EQ(clock.decode_seconds(), 0.0);
  clock.pass(true, 3);
  EXPECT_EQ(clock.decoded_tokens(), 3);
  EXPECT_GT(clock.prefill_seconds(), 0.0);
  EXPECT_GT(clock.decode_seconds(), 0.0);
}

}  // namespace
}  // namespace klotski
