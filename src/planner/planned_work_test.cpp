#include <gtest/gtest.h>

#include <algorithm>

#include "planner/choose_plan.h"

namespace klotski {
namespace {

// However much of a sequence is generated, its prompt has a token, and both make up the sequence.
TEST(PlannedWork, EveryPromptHasAToken) {
  for (int64_t tokens = 1; tokens < 8; ++tokens) {
    for (int64_t generated = 0; generated < 12; ++generated) {
      const PlannedWork work = planned_work(
          {.sequences = 3, .tokens_per_sequence = tokens, .generated_tokens = generated});
      EXPECT_GE(work.prompt_tokens, 1) << tokens << " " << generated;
      EXPECT_GE(work.generated_tokens, 1) << tokens << " " << generated;
      EXPECT_EQ(work.prompt_tokens + work.generated_tokens, std::max<int64_t>(2, tokens));
      EXPECT_EQ(work.sequences, 3);
    }
  }
}

}  // namespace
}  // namespace klotski
