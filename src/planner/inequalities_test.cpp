#include "planner/inequalities.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <random>

#include "base/error.h"

namespace klotski {
namespace {

constexpr int64_t kTokens = 64;  // tokens of a micro-batch

const Inequality& at(const Inequalities& all, Arrow arrow) {
  return all[static_cast<size_t>(arrow)];
}

// Two hot experts with 70 % of the choices and two cold ones; all are all but surely activated.
ExpertChoices four_experts() {
  return {.popularity = {0.15, 0.35, 0.35, 0.15}, .experts_per_token = 2, .hot_experts = 2};
}

// A block as in figure 9: experts take long to transfer, and the experts of one micro-batch
// (128 choices) compute as long as its attention.
BlockSeconds figure_nine() {
  return {.attention_compute = 1,
          .gate_compute = 0.1,
          .attention_transfer = 1,
          .gate_transfer = 0.2,
          .expert_transfer = 2.5,
          .expert_compute = [](double tokens) { return tokens / 128; }};
}

// Plays figure 9: transfers run back to back from the first attention on, computing waits where its
// weights are missing. Returns the seconds waited before each arrow, all waits before it included.
std::array<double, kArrows> waits(const BlockSeconds& seconds, int64_t n) {
  const auto batches = static_cast<double>(n);
  const double choices = batches * 2 * static_cast<double>(kTokens);
  const double hot = seconds.expert_compute(0.35 * choices),
               cold = seconds.expert_compute(0.15 * choices);
  double transferred = 0, computed = 0, waited = 0;
  const auto run = [&](double transfer, double compute) {
    transferred += transfer;
    const double wait = std::max(0.0, transferred - computed);
    waited += wait;
    computed += wait + compute;
  };
  std::array<double, kArrows> result{};
  run(0, batches * seconds.attention_compute);  // attention's weights came during the block before
  run(seconds.gate_transfer, batches * seconds.gate_compute);
  result[0] = waited;
  run(2 * seconds.expert_transfer, 2 * hot);
  result[1] = waited;
  run(seconds.expert_transfer, cold);
  result[2] = waited;
  run(seconds.expert_transfer, cold);
  run(seconds.attention_transfer, 0);
  result[3] = waited;
  return result;
}

TEST(Inequalities, SidesAreThoseOfThePaper) {
  const Inequalities all = inequalities(figure_nine(), four_experts(), 4, kTokens);
  EXPECT_NEAR(at(all, Arrow::gate).left_seconds, 4, 1e-9);
  EXPECT_NEAR(at(all, Arrow::gate).right_seconds, 0.2, 1e-9);
  EXPECT_NEAR(at(all, Arrow::hot_experts).left_seconds, 4.4, 1e-9);
  EXPECT_NEAR(at(all, Arrow::hot_experts).right_seconds, 0.2 + 2 * 2.5, 1e-9);
  EXPECT_NEAR(at(all, Arrow::cold_experts).left_seconds, 4.4 + 0.7 * 4, 1e-9);
  EXPECT_NEAR(at(all, Arrow::cold_experts).right_seconds, 0.2 + 3 * 2.5, 1e-9);
  EXPECT_NEAR(at(all, Arrow::next_attention).left_seconds, 4.4 + 4, 1e-9);
  EXPECT_NEAR(at(all, Arrow::next_attention).right_seconds, 0.2 + 4 * 2.5 + 1, 1e-9);
  for (size_t i = 0; i < kArrows; ++i) {
    EXPECT_EQ(inequality_number(all[i].arrow), 4 + static_cast<int>(i));
  }
  EXPECT_EQ(arrow_name(tightest(all).arrow), "next attention");
  EXPECT_NEAR(tightest(all).slack_seconds(), -2.8, 1e-9);
}

TEST(Inequalities, FigureNineHasBubblesBelowTheSmallestGroupAndNoneFromItOn) {
  // Inequality 4 holds from 1 on, 5 from 5.2 / 1.1 = 4.7, 6 from 7.7 / 1.8 = 4.3, 7 from
  // 11.2 / 2.1 = 5.3: with four micro-batches the hot experts wait and all after them, with five
  // the next attention alone.
  const GroupChoice choice = smallest_group(figure_nine(), four_experts(), 32, kTokens);
  EXPECT_TRUE(choice.without_bubbles());
  EXPECT_EQ(choice.micro_batches, 6);
  const auto four = inequalities(figure_nine(), four_experts(), 4, kTokens);
  EXPECT_TRUE(at(four, Arrow::gate).holds());
  EXPECT_FALSE(at(four, Arrow::hot_experts).holds());
  const auto five = inequalities(figure_nine(), four_experts(), 5, kTokens);
  EXPECT_TRUE(at(five, Arrow::cold_experts).holds());
  EXPECT_FALSE(at(five, Arrow::next_attention).holds());
  // The wait of computing before an arrow is the largest shortfall up to it.
  for (int64_t n = 1; n <= 8; ++n) {
    const auto all = inequalities(figure_nine(), four_experts(), n, kTokens);
    const auto waited = waits(figure_nine(), n);
    double shortfall = 0;
    for (size_t i = 0; i < kArrows; ++i) {
      shortfall = std::max(shortfall, -all[i].slack_seconds());
      EXPECT_NEAR(waited[i], shortfall, 1e-9)
          << n << " micro-batches, " << arrow_name(all[i].arrow);
    }
    EXPECT_EQ(waited[3] == 0, n >= 6) << n;
  }
}

// All computing takes a second and no transfer any time, so that a test can slow down one thing.
BlockSeconds nothing_to_transfer() {
  return {.attention_compute = 1, .gate_compute = 1, .expert_compute = [](double) { return 1.0; }};
}

void expect_only(const BlockSeconds& seconds, Arrow arrow, int64_t smallest) {
  const GroupChoice choice = smallest_group(seconds, four_experts(), 100, kTokens);
  EXPECT_EQ(choice.micro_batches, smallest);
  EXPECT_TRUE(choice.without_bubbles());
  const Inequalities smaller = inequalities(seconds, four_experts(), smallest - 1, kTokens);
  for (const Inequality& one : smaller) {
    EXPECT_EQ(one.holds(), one.arrow != arrow) << arrow_name(one.arrow);
  }
}

TEST(Inequalities, EachAloneDecides) {
  EXPECT_EQ(smallest_group(nothing_to_transfer(), four_experts(), 100, kTokens).micro_batches, 1);

  BlockSeconds gate = nothing_to_transfer();  // 4: n >= 6.5
  gate.gate_transfer = 6.5;
  gate.expert_compute = [](double) { return 10.0; };
  expect_only(gate, Arrow::gate, 7);

  BlockSeconds hot = nothing_to_transfer();  // 5: 2 n >= 2 * 6.5
  hot.expert_transfer = 6.5;
  hot.expert_compute = [](double) { return 10.0; };
  expect_only(hot, Arrow::hot_experts, 7);

  // 6: 4 n + 2 * 2.25 >= 3 * 7; 5 needs only 4 n >= 2 * 7
  BlockSeconds cold = nothing_to_transfer();
  cold.gate_compute = 3;
  cold.expert_transfer = 7;
  cold.expert_compute = [](double tokens) { return tokens > 150 ? 2.25 : 10.0; };  // hot are quick
  expect_only(cold, Arrow::cold_experts, 5);

  BlockSeconds attention = nothing_to_transfer();  // 7: 2 n + 4 >= 16.5
  attention.attention_transfer = 16.5;
  expect_only(attention, Arrow::next_attention, 7);
}

TEST(Inequalities, EqualSidesHold) {
  BlockSeconds seconds = nothing_to_transfer();
  seconds.gate_transfer = 6;
  EXPECT_EQ(smallest_group(seconds, four_experts(), 100, kTokens).micro_batches, 6);
}

TEST(Inequalities, WithoutAGroupTheShortestBubblePerMicroBatchIsNamed) {
  const GroupChoice choice = smallest_group(figure_nine(), four_experts(), 5, kTokens);
  EXPECT_FALSE(choice.without_bubbles());
  EXPECT_EQ(choice.micro_batches, 5);
  EXPECT_EQ(tightest(choice.inequalities).arrow, Arrow::next_attention);
  EXPECT_NEAR(tightest(choice.inequalities).slack_seconds(), 2.1 * 5 - 11.2, 1e-9);
}

TEST(Inequalities, AnUnevenExpertTimeMayFavourASmallerGroup) {
  const ExpertChoices choices{.popularity = {1, 0}, .experts_per_token = 1, .hot_experts = 1};
  BlockSeconds seconds{.attention_compute = 1, .attention_transfer = 20};
  seconds.expert_compute = [](double tokens) { return tokens == 3 ? 18.0 : 1.0; };
  const GroupChoice three = smallest_group(seconds, choices, 50, 1);
  EXPECT_EQ(three.micro_batches, 3);
  EXPECT_FALSE(tightest(inequalities(seconds, choices, 4, 1)).holds());
  // One second too little with three, more than a second a micro-batch with any other.
  seconds.expert_compute = [](double tokens) { return tokens == 3 ? 16.0 : 1.0; };
  const GroupChoice best = smallest_group(seconds, choices, 10, 1);
  EXPECT_FALSE(best.without_bubbles());
  EXPECT_EQ(best.micro_batches, 3);
}

TEST(Inequalities, WithOnlyHotExpertsNothingColdIsWaitedFor) {
  ExpertChoices choices = four_experts();
  choices.popularity = {0.5, 0, 0, 0.5};
  const Inequalities all = inequalities(figure_nine(), choices, 3, kTokens);
  EXPECT_EQ(at(all, Arrow::cold_experts).right_seconds, at(all, Arrow::hot_experts).right_seconds);
  EXPECT_NEAR(at(all, Arrow::next_attention).right_seconds, 0.2 + 2 * 2.5 + 1, 1e-9);
  EXPECT_EQ(at(all, Arrow::next_attention).left_seconds, at(all, Arrow::cold_experts).left_seconds);
}

TEST(Inequalities, SlackGrowsWithTheGroupAndTheBandwidth) {
  std::mt19937 random(3);
  std::uniform_real_distribution<double> any(0.01, 2);
  for (int i = 0; i < 300; ++i) {
    const double per_token = any(random) / 100;
    BlockSeconds seconds{
        .attention_compute = any(random),
        .gate_compute = any(random) / 10,
        .attention_transfer = any(random) * 3,
        .gate_transfer = any(random),
        .expert_transfer = any(random) * 3,
        .expert_compute = [per_token](double tokens) { return tokens * per_token; }};
    const int64_t n = 1 + i % 20;
    const GroupChoice slow = smallest_group(seconds, four_experts(), 400, kTokens);
    const Inequalities before = inequalities(seconds, four_experts(), n, kTokens);
    const Inequalities larger = inequalities(seconds, four_experts(), n + 1, kTokens);
    for (int64_t smaller = 1; smaller < slow.micro_batches; ++smaller) {
      EXPECT_FALSE(tightest(inequalities(seconds, four_experts(), smaller, kTokens)).holds());
    }
    const double faster = 1 + any(random);
    for (double* transfer :
         {&seconds.attention_transfer, &seconds.gate_transfer, &seconds.expert_transfer}) {
      *transfer /= faster;
    }
    const Inequalities quick = inequalities(seconds, four_experts(), n, kTokens);
    for (size_t a = 0; a < kArrows; ++a) {
      EXPECT_GT(larger[a].slack_seconds(), before[a].slack_seconds());
      EXPECT_GT(quick[a].slack_seconds(), before[a].slack_seconds());
    }
    EXPECT_LE(smallest_group(seconds, four_experts(), 400, kTokens).micro_batches,
              slow.micro_batches);
  }
}

TEST(Inequalities, NonsenseIsRefused) {
  EXPECT_THROW(inequalities(figure_nine(), four_experts(), 0, kTokens), Error);
  EXPECT_THROW(inequalities(figure_nine(), four_experts(), 1, 0), Error);
  EXPECT_THROW(smallest_group(figure_nine(), four_experts(), 0, kTokens), Error);
  BlockSeconds seconds = figure_nine();
  seconds.gate_transfer = -1;
  EXPECT_THROW(inequalities(seconds, four_experts(), 1, kTokens), Error);
  EXPECT_THROW(inequalities({}, four_experts(), 1, kTokens), Error);
  ExpertChoices choices = four_experts();
  choices.hot_experts = 5;
  EXPECT_THROW(inequalities(figure_nine(), choices, 1, kTokens), Error);
  choices = four_experts();
  choices.popularity = {0.5, 0.4};
  EXPECT_THROW(inequalities(figure_nine(), choices, 1, kTokens), Error);
}

}  // namespace
}  // namespace klotski
