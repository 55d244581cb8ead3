#include "engine/verify.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

#include "base/file.h"
#include "base/json.h"
#include "engine/testing/models.h"

namespace klotski {
namespace {

std::string reference_text(const std::string& folder) {
  return read_text_file(folder + "/reference.json", 1 << 26);
}

// The model as the program computes it that made its reference.
TestModel model_of(const std::string& folder) {
  TestModel model(folder);
  repeat_fault(model.description, reference_version(reference_text(folder), "reference.json"));
  return model;
}

std::vector<ReferencePrompt> reference_of(const std::string& folder, const TestModel& model) {
  return parse_reference(reference_text(folder), "reference.json", model.description);
}

std::vector<ObservedPrompt> observe_prompts(const TestModel& model,
                                            const std::vector<ReferencePrompt>& prompts,
                                            const RunLimits& limits,
                                            const Processor& ops = reference_processor()) {
  PipelineOptions options;
  options.router_gaps = true;
  PreparedModel prepared =
      model.prepare(limits, observe_workload(prompts, model.description, 1), options, ops);
  return observe(prepared.pipeline(), prompts);
}

std::vector<ObservedPrompt> observe_folder(const std::string& folder, const RunLimits& limits,
                                           const Processor& ops = reference_processor()) {
  const TestModel model = model_of(folder);
  return observe_prompts(model, reference_of(folder, model), limits, ops);
}

// The run in f32 that other runs are judged by, made once.
const std::vector<ObservedPrompt>& exact_run(const std::string& folder) {
  static std::map<std::string, std::vector<ObservedPrompt>> runs;
  const auto found = runs.find(folder);
  if (found != runs.end()) return found->second;
  return runs[folder] = observe_folder(folder, {.precision = Precision::f32});
}

class Verify : public ::testing::TestWithParam<std::string> {
 protected:
  std::vector<ReferencePrompt> prompts_ = reference_of(GetParam(), TestModel(GetParam()));
};

// References computed in float64 by Hugging Face transformers from these bf16 weights.
TEST_P(Verify, F32EqualsTheReference) {
  const std::vector<ObservedPrompt>& exact = exact_run(GetParam());
  const VerifyReport report = verify(prompts_, exact, exact, verify_rules(Precision::f32));
  EXPECT_TRUE(report.passed);
  EXPECT_EQ(report.clear_agreed, report.clear);
  ASSERT_GE(report.prompts.size(), 3u);
  for (size_t i = 0; i < report.prompts.size(); ++i) {
    const PromptReport& prompt = report.prompts[i];
    EXPECT_TRUE(prompt.passed) << "prompt " << i;
    EXPECT_EQ(prompt.greedy_agreed, prompt.greedy_tokens);
    EXPECT_EQ(prompt.positions_agreed, prompt.positions);
    EXPECT_LT(prompt.logit_error.value_or(0.0), 1e-5);
  }
}

TEST_P(Verify, Bf16IsWithinItsRules) {
  for (const Processor* ops : {&reference_processor(), &cpu_processor()}) {
    SCOPED_TRACE(ops == &cpu_processor() ? "cpu" : "reference");
    const std::vector<ObservedPrompt> run =
        observe_folder(GetParam(), {.precision = Precision::bf16}, *ops);
    const VerifyReport report =
        verify(prompts_, exact_run(GetParam()), run, verify_rules(Precision::bf16));
    EXPECT_TRUE(report.passed);
    EXPECT_GT(report.clear, 0);
    for (size_t i = 0; i < report.prompts.size(); ++i) {
      EXPECT_TRUE(report.prompts[i].passed) << "prompt " << i;
    }
  }
}

// The experts a run in f32 chooses are the reference's own, wherever they are not tied: so verify
// may take them from a run in f32. router_topk: [layer][position][experts, best first].
class VerifyExperts : public ::testing::TestWithParam<std::string> {};

TEST_P(VerifyExperts, OfF32AreTheReferences) {
  const std::string folder = test_model(GetParam());
  const Json prompts = parse_json(reference_text(folder), "reference.json")["prompts"];
  int64_t compared = 0;
  for (size_t i = 0; i < prompts.size(); ++i) {
    const Json& expected = prompts[i]["router_topk"];
    const ObservedPrompt& exact = exact_run(folder)[i];
    ASSERT_EQ(expected.size(), exact.layers.size());
    for (size_t l = 0; l < exact.layers.size(); ++l) {
      const ObservedLayer& layer = exact.layers[l];
      const auto choices = static_cast<size_t>(layer.choices);
      for (size_t p = 0; p < expected[l].size(); ++p) {
        if (layer.gaps[p] <= 1e-4f) continue;
        std::vector<ExpertId> experts;
        for (size_t k = 0; k < choices; ++k) experts.emplace_back(expected[l][p][k].get<int64_t>());
        std::sort(experts.begin(), experts.end());
        const auto found = layer.experts.begin() + static_cast<std::ptrdiff_t>(p * choices);
        EXPECT_TRUE(std::equal(experts.begin(), experts.end(), found))
            << "prompt " << i << " layer " << l << " position " << p;
        ++compared;
      }
    }
  }
  EXPECT_GT(compared, 150);  // 3 layers x 71 positions
}

INSTANTIATE_TEST_SUITE_P(Models, VerifyExperts,
                         ::testing::Values("mixtral", "olmoe", "qwen2_moe", "qwen3_moe"),
                         [](const auto& test) { return test.param; });

std::vector<std::string> all_models() {
  std::vector<std::string> folders = {KLOTSKI_MODELS "/tiny-mixtral"};
  for (const char* parent : {KLOTSKI_TEST_DATA "/models", KLOTSKI_TEST_DATA "/models/variants"}) {
    for (const auto& entry : std::filesystem::directory_iterator(parent)) {
      if (std::filesystem::exists(entry.path() / "config.json")) {
        folders.push_back(entry.path().native());
      }
    }
  }
  std::sort(folders.begin(), folders.end());
  return folders;
}

INSTANTIATE_TEST_SUITE_P(Models, Verify, ::testing::ValuesIn(all_models()), [](const auto& test) {
  std::string name = std::filesystem::path(test.param).filename();
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

TEST(VerifyModels, AllFamiliesAndVariantsAreThere) { EXPECT_EQ(all_models().size(), 53u); }

// Observed results must not depend on how the work was divided.
TEST(Observe, IsTheSameForEveryStrategyAndGroup) {
  const std::string folder = test_model("qwen3_moe");
  const std::vector<ObservedPrompt>& expected = exact_run(folder);
  for (const RunLimits& limits :
       {RunLimits{.strategy = Strategy::simple, .precision = Precision::f32, .micro_batch = 1},
        RunLimits{.precision = Precision::f32, .micro_batch = 2, .micro_batches = 2},
        RunLimits{.precision = Precision::f32, .micro_batch = 1, .micro_batches = 3}}) {
    const std::vector<ObservedPrompt> found = observe_folder(folder, limits);
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i) {
      EXPECT_EQ(found[i].best, expected[i].best);
      EXPECT_EQ(found[i].margins, expected[i].margins);
      ASSERT_EQ(found[i].layers.size(), expected[i].layers.size());
      for (size_t l = 0; l < found[i].layers.size(); ++l) {
        EXPECT_EQ(found[i].layers[l].experts, expected[i].layers[l].experts);
        EXPECT_EQ(found[i].layers[l].gaps, expected[i].layers[l].gaps);
      }
    }
  }
}

// The check must be able to fail: every kind of wrong expectation is noticed.
class VerifyF32 : public ::testing::Test {
 protected:
  VerifyReport report(const std::vector<ReferencePrompt>& prompts) const {
    const std::vector<ObservedPrompt> run =
        observe_prompts(model_, prompts, {.precision = Precision::f32});
    return verify(prompts, run, run, verify_rules(Precision::f32));
  }
  bool passed() const { return report(prompts_).passed; }

  TestModel model_{test_model("mixtral")};
  std::vector<ReferencePrompt> prompts_ = reference_of(test_model("mixtral"), model_);
};

TEST_F(VerifyF32, AcceptsTheTruth) { EXPECT_TRUE(passed()); }

TEST_F(VerifyF32, NoticesAWrongLogit) {
  prompts_[1].last_logits[17] += 0.01f;
  EXPECT_FALSE(passed());
}

TEST_F(VerifyF32, AnInfiniteErrorIsANumberThatJsonCanCarry) {
  prompts_[0].last_logits.assign(prompts_[0].last_logits.size(), 0.0f);
  const VerifyReport found = report(prompts_);
  EXPECT_FALSE(found.passed);
  EXPECT_FALSE(found.prompts[0].passed);
  EXPECT_TRUE(std::isfinite(found.prompts[0].logit_error.value()));
}

TEST_F(VerifyF32, NoticesAWrongTokenWithAClearMargin) {
  prompts_[2].greedy.back() ^= 1;
  prompts_[2].margins.back() = 0.5;
  EXPECT_FALSE(passed());
}

TEST_F(VerifyF32, ForgivesAWrongTokenInATie) {
  prompts_[2].greedy.back() ^= 1;
  prompts_[2].margins.back() = 0.0005;
  EXPECT_TRUE(passed());
}

TEST_F(VerifyF32, NoticesAWrongTokenInsideThePrompt) {
  prompts_[3].argmax_all[5] ^= 1;
  EXPECT_FALSE(passed());
}

TEST_F(VerifyF32, NoticesAWrongTokenWhereTheFileHasNoMargins) {
  prompts_[2].margins.clear();
  EXPECT_TRUE(passed());
  prompts_[2].greedy.back() ^= 1;
  EXPECT_FALSE(passed());
}

}  // namespace
}  // namespace klotski
