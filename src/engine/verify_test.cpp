#include "engine/verify.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/file.h"
#include "engine/testing/models.h"

namespace klotski {
namespace {

std::vector<PromptReport> verify_folder(const std::string& folder) {
  const TestModel model(folder);
  const auto prompts = parse_reference(read_text_file(folder + "/reference.json", 1 << 26),
                                       "reference.json", model.description);
  PreparedModel prepared = model.prepare({}, verify_workload(prompts));
  return verify(prepared.pipeline(), prompts, {});
}

class Verify : public ::testing::TestWithParam<std::string> {};

// References computed in float64 by Hugging Face transformers from the same bf16 weights.
TEST_P(Verify, EqualsTheReference) {
  const std::vector<PromptReport> reports = verify_folder(GetParam());
  ASSERT_GE(reports.size(), 3u);
  for (size_t i = 0; i < reports.size(); ++i) {
    const PromptReport& report = reports[i];
    EXPECT_TRUE(report.passed) << "prompt " << i;
    EXPECT_EQ(report.greedy_agreed, report.greedy_tokens);
    EXPECT_EQ(report.positions_agreed, report.positions);
    EXPECT_LT(report.logit_error.value_or(0.0), 1e-5);
  }
}

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

TEST(VerifyModels, FourFamiliesAndAllVariantsAreThere) { EXPECT_EQ(all_models().size(), 16u); }

// The check must be able to fail: every kind of wrong expectation is noticed.
class VerifyRules : public ::testing::Test {
 protected:
  VerifyRules()
      : model_(test_model("mixtral")),
        prompts_(parse_reference(read_text_file(test_model("mixtral") + "/reference.json", 1 << 26),
                                 "reference.json", model_.description)) {}

  std::vector<PromptReport> run() {
    PreparedModel prepared = model_.prepare({}, verify_workload(prompts_));
    return verify(prepared.pipeline(), prompts_, {});
  }
  bool passed() {
    const std::vector<PromptReport> reports = run();
    return std::all_of(reports.begin(), reports.end(), [](const auto& r) { return r.passed; });
  }

  TestModel model_;
  std::vector<ReferencePrompt> prompts_;
};

TEST_F(VerifyRules, AcceptsTheTruth) { EXPECT_TRUE(passed()); }

TEST_F(VerifyRules, NoticesAWrongLogit) {
  prompts_[1].last_logits[17] += 0.01f;
  EXPECT_FALSE(passed());
}

TEST_F(VerifyRules, AnInfiniteErrorIsANumberThatJsonCanCarry) {
  prompts_[0].last_logits.assign(prompts_[0].last_logits.size(), 0.0f);
  const std::vector<PromptReport> reports = run();
  EXPECT_FALSE(reports[0].passed);
  EXPECT_TRUE(std::isfinite(reports[0].logit_error.value()));
}

TEST_F(VerifyRules, NoticesAWrongTokenWithAClearMargin) {
  prompts_[2].greedy.back() ^= 1;
  prompts_[2].margins.back() = 0.5;
  EXPECT_FALSE(passed());
}

TEST_F(VerifyRules, ForgivesAWrongTokenInATie) {
  prompts_[2].greedy.back() ^= 1;
  prompts_[2].margins.back() = 0.0005;
  EXPECT_TRUE(passed());
}

TEST_F(VerifyRules, NoticesAWrongTokenInsideThePrompt) {
  prompts_[3].argmax_all[5] ^= 1;
  EXPECT_FALSE(passed());
}

TEST(ParseReference, RefusesWhatDoesNotFitTheModel) {
  const ModelDescription model = read_config(test_model("mixtral"));
  const std::vector<std::string> bad = {
      R"([])",
      R"({})",
      R"({"prompts":[]})",
      R"({"prompts":[{"greedy":[1]}]})",
      R"({"prompts":[{"input_ids":[]}]})",
      R"({"prompts":[{"input_ids":[1],"last_logit":[1]}]})",
      R"({"prompts":[{"input_ids":[256]}]})",
      R"({"prompts":[{"input_ids":[-1]}]})",
      R"({"prompts":[{"input_ids":[1],"last_logits":[1,2]}]})",
      R"({"prompts":[{"input_ids":[1],"argmax_all":[1,2]}]})",
      R"({"prompts":[{"input_ids":[1],"greedy":[1,2],"margins":[0.1]}]})",
      R"({"prompts":[{"input_ids":[1],"greedy":[1],"margins":["x"]}]})",
  };
  for (const std::string& text : bad) {
    EXPECT_THROW(parse_reference(text, "reference.json", model), Error) << text;
  }
}

}  // namespace
}  // namespace klotski
