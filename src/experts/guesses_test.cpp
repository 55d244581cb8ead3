#include "experts/guesses.h"

#include <gtest/gtest.h>

namespace klotski {
namespace {

// Four layers; layer 2 runs next. Expert 1 of layer 2 is likely, one of layer 3 a little likelier
// but a layer further: 0.8 x 1 before 0.9 x 3/4 = 0.675. Layer 0 is two layers ahead, in the next
// pass: 1 x 2/4. Layer 1 is three ahead: 0.16 x 1/4 = 0.04 is not worth a thought.
TEST(Guesses, ProbabilityTimesProximity) {
  const std::vector<LayerProbabilities> coming = {{LayerId(2), {0.1, 0.8}},
                                                  {LayerId(3), {0.9, 0.0}},
                                                  {LayerId(0), {0.0, 1.0}},
                                                  {LayerId(1), {0.16, 0.0}}};
  const std::vector<Guess> guesses = by_priority(coming, LayerId(2), 4);
  ASSERT_EQ(guesses.size(), 4u);
  EXPECT_EQ(guesses[0].expert, (ExpertKey{LayerId(2), ExpertId(1)}));
  EXPECT_DOUBLE_EQ(guesses[0].priority, 0.8);
  EXPECT_EQ(guesses[1].expert, (ExpertKey{LayerId(3), ExpertId(0)}));
  EXPECT_DOUBLE_EQ(guesses[1].priority, 0.675);
  EXPECT_EQ(guesses[2].expert, (ExpertKey{LayerId(0), ExpertId(1)}));
  EXPECT_DOUBLE_EQ(guesses[2].priority, 0.5);
  EXPECT_DOUBLE_EQ(guesses[3].priority, 0.1);
}

// A link that brings a quarter of an expert while a layer computes: a wrong guess costs three
// quarters of a load, so it has to be right three times in four.
TEST(Guesses, ASlowLinkTakesOnlyWhatIsNearlyCertain) {
  EXPECT_TRUE(worth_guessing({.expert = {}, .priority = 0.76}, 0, 0.25));
  EXPECT_FALSE(worth_guessing({.expert = {}, .priority = 0.74}, 0, 0.25));
  EXPECT_FALSE(worth_guessing({.expert = {}, .priority = 1.0}, 1, 0.25)) << "it would not begin";
}

TEST(Guesses, AnIdleLinkTakesAnything) {
  EXPECT_TRUE(worth_guessing({.expert = {}, .priority = 0.05}, 0, 2.5));
  EXPECT_TRUE(worth_guessing({.expert = {}, .priority = 0.05}, 1, 2.5));
  EXPECT_FALSE(worth_guessing({.expert = {}, .priority = 0.4}, 2, 2.5)) << "half is not done";
  EXPECT_TRUE(worth_guessing({.expert = {}, .priority = 0.6}, 2, 2.5));
}

}  // namespace
}  // namespace klotski
