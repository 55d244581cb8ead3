#include "engine/resident_model.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <random>

#include "base/error.h"
#include "base/file.h"
#include "engine/testing.h"

namespace klotski {
namespace {

struct LogitTrace {
  std::vector<std::vector<float>> logits;  // [step][vocabulary] of one sequence
  bool operator==(const LogitTrace&) const = default;
};

// Prefill of each prompt and `steps` further tokens, all sequences in one batch a step. The further
// tokens are fixed, so that the comparison is of logits, not of choices.
std::vector<LogitTrace> run_together(const ResidentModel& model,
                                     const std::vector<std::vector<TokenId>>& prompts, int steps) {
  PagedKvCache cache(model.description(), {.memory_bytes = uint64_t{1} << 28});
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
    Buffer logits = model.forward(batch, members, cache, reference_ops());
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
  const ResidentModel model = load_model(test_model(GetParam()));
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
  const ResidentModel model = load_model(test_model(GetParam()));
  std::vector<TokenId> prompt(70);
  for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<TokenId>(i * 13 % 96);
  const LogitTrace whole = run_together(model, {prompt}, 0)[0];
  for (const size_t piece : {1u, 7u, 16u, 36u}) {
    PagedKvCache cache(model.description(), {.memory_bytes = uint64_t{1} << 28});
    KvSequence sequence;
    KvSequence* const members[] = {&sequence};
    std::vector<float> last;
    for (size_t at = 0; at < prompt.size(); at += piece) {
      Batch batch;
      const auto next = std::span(prompt).subspan(at, std::min(piece, prompt.size() - at));
      ASSERT_TRUE(cache.reserve(sequence, static_cast<int64_t>(next.size())));
      batch.append(sequence.length(), next, static_cast<int64_t>(prompt.size()),
                   LogitsOf::last_token);
      Buffer logits = model.forward(batch, members, cache, reference_ops());
      cache.commit(sequence, static_cast<int64_t>(next.size()));
      last.assign(logits.floats().begin(), logits.floats().end());
    }
    EXPECT_EQ(last, whole.logits[0]) << "pieces of " << piece;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, ResidentModels,
                         ::testing::Values("mixtral", "qwen2_moe", "qwen3_moe", "olmoe"));
INSTANTIATE_TEST_SUITE_P(LengthDependentRope, ResidentModels,
                         ::testing::Values("variants/mixtral_dynamic",
                                           "variants/mixtral_longrope"));

// A copy of a fixture whose config.json can be changed.
class ChangedModel : public ::testing::Test {
 protected:
  ChangedModel()
      : folder_(std::filesystem::path(::testing::TempDir()) /
                ("changed" + std::to_string(::getpid()))) {
    std::filesystem::remove_all(folder_);
    std::filesystem::copy(test_model("qwen3_moe"), folder_);
  }
  ~ChangedModel() override { std::filesystem::remove_all(folder_); }

  std::string error_after(const std::string& field, const Json& value) {
    Json config = parse_json(read_text_file(folder_ / "config.json", 1 << 20), "config.json");
    config[field] = value;
    std::ofstream(folder_ / "config.json") << config.dump();
    try {
      load_model(folder_.native());
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::bad_model);
      return error.what();
    }
    return "";
  }

  std::filesystem::path folder_;
};

TEST_F(ChangedModel, ShapesThatContradictTheConfigAreNamed) {
  EXPECT_NE(error_after("vocab_size", 300).find("model.embed_tokens.weight"), std::string::npos);
}

TEST_F(ChangedModel, MissingTensorsAreNamed) {
  EXPECT_NE(error_after("attention_bias", true).find("q_proj.bias"), std::string::npos);
}

TEST_F(ChangedModel, MoreLayersThanTheFileHasAreNamed) {
  EXPECT_NE(error_after("num_hidden_layers", 4).find("model.layers.3."), std::string::npos);
}

// A fault at any read while loading ends in an error, never in a model with wrong weights.
TEST(ResidentModelFaults, EveryFailingReadIsReported) {
  class FailingRead : public ReadCalls {
   public:
    explicit FailingRead(int failing) : failing_(failing) {}
    ssize_t pread(int descriptor, void* buffer, size_t size, off_t offset) override {
      if (++calls == failing_) {
        errno = EIO;
        return -1;
      }
      return ReadCalls::pread(descriptor, buffer, size, offset);
    }
    int calls = 0;

   private:
    int failing_;
  };
  FailingRead counter(0);
  {
    const ScopedReadCalls in_force(counter);
    load_model(test_model("qwen2_moe"));
  }
  ASSERT_GT(counter.calls, 50);
  for (int failing = 1; failing <= counter.calls; ++failing) {
    FailingRead calls(failing);
    const ScopedReadCalls in_force(calls);
    EXPECT_THROW(load_model(test_model("qwen2_moe")), Error) << failing;
  }
}

}  // namespace
}  // namespace klotski
