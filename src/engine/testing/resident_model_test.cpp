#include "engine/testing/resident_model.h"

#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "engine/testing/models.h"

namespace klotski {
namespace {

constexpr Precision kPrecision = Precision::f32;

struct LogitTrace {
  std::vector<std::vector<float>> logits;  // [step][vocabulary] of one sequence
  bool operator==(const LogitTrace&) const = default;
};

// Prefill of each prompt and `steps` further tokens, all sequences in one batch a step. The further
// tokens are fixed, so that the comparison is of logits, not of choices.
std::vector<LogitTrace> run_together(const ResidentModel& model,
                                     const std::vector<std::vector<TokenId>>& prompts, int steps) {
  PagedKvCache cache(model.description(),
                     {.type = kv_type(kPrecision), .memory_bytes = uint64_t{1} << 28});
  std::vector<KvSequence> sequences(prompts.size());
  std::vector<KvSequence*> members;
  for (KvSequence& sequence : sequences) members.push_back(&sequence);
  std::vector<LogitTrace> runs(prompts.size());
  for (int step = 0; step <= steps; ++step) {
    Batch batch;
    for (size_t i = 0; i < prompts.size(); ++i) {
      const std::vector<TokenId> next =
          step == 0 ? prompts[i] : std::vector<TokenId>{(step * 31 + 7) % 89};
      if (!cache.reserve(sequences[i], static_cast<int64_t>(next.size()))) {
        throw std::runtime_error("the test's cache is too small");
      }
      batch.append(sequences[i].length(), next,
                   sequences[i].length() + static_cast<int64_t>(next.size()), LogitsOf::last_token);
    }
    Buffer logits = model.forward(batch, members, cache, reference_processor(), kPrecision);
    for (size_t i = 0; i < prompts.size(); ++i) {
      cache.commit(sequences[i], batch.sequences[i].tokens);
      const float* row = logits.rows().row(static_cast<int64_t>(i));
      runs[i].logits.emplace_back(row, row + model.description().vocabulary);
    }
  }
  return runs;
}

class ResidentModels : public ::testing::TestWithParam<const char*> {};

TEST_P(ResidentModels, ABatchOfEightGivesBitForBitWhatEachGivesAlone) {
  const ResidentModel model = TestModel(test_model(GetParam())).resident();
  std::mt19937 random(11);
  std::vector<std::vector<TokenId>> prompts;
  for (const size_t length : {1u, 2u, 5u, 16u, 17u, 23u, 40u, 70u}) {
    std::vector<TokenId>& prompt = prompts.emplace_back(length);
    for (TokenId& token : prompt) token = static_cast<TokenId>(random() % 96);
  }
  const std::vector<LogitTrace> together = run_together(model, prompts, 10);
  for (size_t i = 0; i < prompts.size(); ++i) {
    EXPECT_EQ(run_together(model, {prompts[i]}, 10)[0], together[i]) << "sequence " << i;
  }
  std::vector<std::vector<TokenId>> reversed(prompts.rbegin(), prompts.rend());
  const std::vector<LogitTrace> backwards = run_together(model, reversed, 10);
  for (size_t i = 0; i < prompts.size(); ++i) EXPECT_EQ(backwards[7 - i], together[i]);
}

TEST_P(ResidentModels, APromptInPiecesGivesBitForBitTheSame) {
  const ResidentModel model = TestModel(test_model(GetParam())).resident();
  std::vector<TokenId> prompt(70);
  for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<TokenId>(i * 13 % 96);
  const LogitTrace whole = run_together(model, {prompt}, 0)[0];
  for (const size_t piece : {1u, 7u, 16u, 36u}) {
    PagedKvCache cache(model.description(),
                       {.type = kv_type(kPrecision), .memory_bytes = uint64_t{1} << 28});
    KvSequence sequence;
    KvSequence* const members[] = {&sequence};
    std::vector<float> last;
    for (size_t at = 0; at < prompt.size(); at += piece) {
      Batch batch;
      const auto next = std::span(prompt).subspan(at, std::min(piece, prompt.size() - at));
      ASSERT_TRUE(cache.reserve(sequence, static_cast<int64_t>(next.size())));
      batch.append(sequence.length(), next, static_cast<int64_t>(prompt.size()),
                   LogitsOf::last_token);
      Buffer logits = model.forward(batch, members, cache, reference_processor(), kPrecision);
      cache.commit(sequence, static_cast<int64_t>(next.size()));
      last.assign(logits.floats().begin(), logits.floats().end());
    }
    EXPECT_EQ(last, whole.logits[0]) << "pieces of " << piece;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Families, ResidentModels,
    ::testing::Values("mixtral", "qwen2_moe", "qwen3_moe", "olmoe", "gpt_oss", "llama4_text",
                      "variants/gpt_oss_mxfp4", "variants/llama4_chunks_dense",
                      "variants/llama4_no_norm", "variants/arctic", "variants/arctic_dense_layers",
                      "variants/dbrx_clip", "variants/ernie_interval_least_sum",
                      "variants/glm4_bias_dense", "variants/glm4_head_norm_groups",
                      "variants/granite_factors_bias", "variants/hunyuan_bias_layers",
                      "variants/minimax_partial", "variants/phimoe_biases_window"));
INSTANTIATE_TEST_SUITE_P(LengthDependentRope, ResidentModels,
                         ::testing::Values("variants/mixtral_dynamic",
                                           "variants/mixtral_longrope"));

}  // namespace
}  // namespace klotski
