#include "neural/adam.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace klotski::neural {
namespace {

// Two steps with gradients 2 and -1, decays 0.5 and 0.75, rate 0.1, weight decay 0.1 on 2 rows:
//   first moments  0.5 * 2 = 1, then 0.5 * 1 + 0.5 * -1 = 0
//   second moments 0.25 * 4 = 1, then 0.75 * 1 + 0.25 * 1 = 1
//   biases of step 1: 1 - 0.5 = 0.5 and 1 - 0.75 = 0.25: a step of 0.1 * (1 / 0.5) / sqrt(1 / 0.25)
TEST(Adam, TwoStepsByHand) {
  Parameter table("table", 2, 1);
  Parameter bias("bias", 1, 1);
  table.value.values = {3, 3};
  bias.value.values = {3};
  Adam adam({&table, &bias}, {.learning_rate = 0.1,
                              .weight_decay = 0.1,
                              .first_decay = 0.5,
                              .second_decay = 0.75,
                              .epsilon = 0});
  table.gradient.values = {2, 2};
  bias.gradient.values = {2};
  adam.step(1.0);
  EXPECT_NEAR(table.value.values[1], 3 * 0.99 - 0.1, 1e-6);
  EXPECT_NEAR(bias.value.values[0], 3 - 0.1, 1e-6);  // a single row does not decay
  EXPECT_EQ(table.gradient.values[0], 0);
  table.gradient.values = {-1, 2};
  adam.step(0.5);
  // Row 0: the first moment is 0, only the decay of half the rate acts.
  EXPECT_NEAR(table.value.values[0], (3 * 0.99 - 0.1) * 0.995, 1e-6);
  // Row 1: moments 0.5 * 1 + 0.5 * 2 = 1.5 and 0.75 + 0.25 * 4 = 1.75, biases 0.75 and 0.4375.
  EXPECT_NEAR(table.value.values[1],
              (3 * 0.99 - 0.1) * 0.995 - 0.05 * (1.5 / 0.75) / std::sqrt(1.75 / 0.4375), 1e-6);
  EXPECT_EQ(adam.steps(), 2);
}

TEST(Adam, ResumesFromMomentsAndThreadsChangeNoBit) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  Parameter whole("whole", 300, 101);
  for (float& value : whole.value.values) value = normal(random);
  Parameter resumed = whole;
  ThreadPool pool(3);
  Adam adam({&whole}, {});
  auto part = std::make_unique<Adam>(std::vector<Parameter*>{&resumed}, AdamOptions{});
  for (int step = 0; step < 6; ++step) {
    for (float& value : whole.gradient.values) value = normal(random);
    resumed.gradient = whole.gradient;
    adam.step(1.0, &pool);
    part->step(1.0);
    auto next = std::make_unique<Adam>(std::vector<Parameter*>{&resumed}, AdamOptions{});
    next->set_steps(part->steps());
    for (size_t i = 0; i < 2; ++i) *next->moments()[i] = *part->moments()[i];
    part = std::move(next);
  }
  EXPECT_EQ(whole.value, resumed.value);
}

TEST(Adam, CosineRisesAndFalls) {
  EXPECT_DOUBLE_EQ(cosine_scale(0, 4, 104), 0.25);
  EXPECT_DOUBLE_EQ(cosine_scale(3, 4, 104), 1.0);
  EXPECT_DOUBLE_EQ(cosine_scale(4, 4, 104), 1.0);
  EXPECT_NEAR(cosine_scale(54, 4, 104), 0.5, 1e-12);
  EXPECT_NEAR(cosine_scale(104, 4, 104), 0.0, 1e-12);
  EXPECT_NEAR(cosine_scale(200, 4, 104), 0.0, 1e-12);
}

}  // namespace
}  // namespace klotski::neural
