#include "engine/draft_budget.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace klotski {
namespace {

TEST(AcceptanceRateTest, FollowsTheLatestDrafts) {
  AcceptanceRate rate;
  EXPECT_DOUBLE_EQ(rate.expected(), 1.0 / 3.0);
  rate.verified(4, 4);
  EXPECT_DOUBLE_EQ(rate.expected(), (0.96 * 0.5 + 4) / (0.96 * 1.5 + 4));
  const double before = rate.expected();
  rate.verified(4, 0);  // one was judged, the three behind it were not
  EXPECT_NEAR(rate.expected(), before * (0.96 * 5.44) / (0.96 * 5.44 + 1), 1e-12);
  for (int i = 0; i < 100; ++i) rate.verified(3, 0);
  EXPECT_LT(rate.expected(), 0.02) << "so that drafts end where they are always wrong";
}

TEST(DraftBudgetTest, NothingIsDraftedBeforeRowsWereMeasured) {
  DraftBudget budget(4, 100);
  EXPECT_EQ(budget.worth(0.99), 0);
  EXPECT_EQ(budget.explorers(8), 0) << "a plain pass first";
  budget.pass_over(8, 0, 8, 1.0);
  EXPECT_EQ(budget.explorers(8), 2);
  EXPECT_EQ(budget.explorers(1), 1);
}

// Two passes whose times are known give the line, and the rule its numbers.
TEST(DraftBudgetTest, ARowIsWorthItsShareOfThePass) {
  DraftBudget budget(4, 100);
  budget.pass_over(10, 0, 10, 2.0);
  budget.pass_over(20, 10, 10, 3.0);  // 0.1 s a row
  const double tokens_a_second = (0.9 * 10 + 10) / (0.9 * 2.0 + 3.0);
  EXPECT_NEAR(budget.least_acceptance(), 0.1 * tokens_a_second, 1e-9);  // 0.396
  EXPECT_EQ(budget.worth(0.3), 0);
  EXPECT_EQ(budget.worth(0.5), 1);
  EXPECT_EQ(budget.worth(0.7), 2) << "0.49 is enough, 0.34 is not";
  EXPECT_EQ(budget.worth(0.99), 4);
}

TEST(DraftBudgetTest, PassesOfPromptsAreLeftOut) {
  DraftBudget budget(4, 100);
  budget.pass_over(101, 0, 1, 50.0);
  EXPECT_EQ(budget.explorers(8), 0) << "no pass so far";
}

// A machine on which a pass of R rows takes a + b R seconds, and texts whose drafted tokens are
// right with one probability.
struct Machine {
  double pass_seconds = 0.0;
  double row_seconds = 0.0;
  double noise = 0.03;
  double acceptance = 0.0;
  int64_t sequences = 1;
};

double tokens_a_second(const Machine& machine, int64_t most_drafts, int passes) {
  std::mt19937_64 random(7);
  std::normal_distribution<double> deviation(1.0, machine.noise);
  std::uniform_real_distribution<double> chance(0.0, 1.0);
  DraftBudget budget(most_drafts, machine.sequences * (1 + most_drafts));
  std::vector<AcceptanceRate> rates(static_cast<size_t>(machine.sequences));
  double seconds = 0.0;
  double tokens = 0.0;
  for (int pass = 0; pass < passes; ++pass) {
    int64_t drafts = 0;
    int64_t gained = 0;
    int64_t explorers = budget.explorers(machine.sequences);
    for (AcceptanceRate& rate : rates) {
      int64_t drafted = budget.worth(rate.expected());
      if (drafted == 0 && explorers-- > 0) drafted = 1;
      int64_t accepted = 0;
      while (accepted < drafted && chance(random) < machine.acceptance) ++accepted;
      if (drafted > 0) rate.verified(drafted, accepted);
      drafts += drafted;
      gained += 1 + accepted;
    }
    const int64_t rows = machine.sequences + drafts;
    const double took = (machine.pass_seconds + machine.row_seconds * static_cast<double>(rows)) *
                        std::max(deviation(random), 0.5);
    budget.pass_over(rows, drafts, gained, took);
    seconds += took;
    tokens += static_cast<double>(gained);
  }
  return tokens / seconds;
}

double gain(const Machine& machine, int passes = 300) {
  return tokens_a_second(machine, 4, passes) / tokens_a_second(machine, 0, passes);
}

TEST(DraftBudgetTest, GainsWhereRowsAreNearlyFree) {
  for (const int64_t sequences : {1, 8, 64}) {
    Machine machine{.pass_seconds = 1.0,
                    .row_seconds = 0.05 / static_cast<double>(sequences),
                    .acceptance = 0.8,
                    .sequences = sequences};
    EXPECT_GT(gain(machine), 2.2) << sequences << " sequences; 2.8 with four right or wrong each";
    EXPECT_GT(gain(machine, 32), 1.8) << sequences << " sequences, short answers";
  }
}

TEST(DraftBudgetTest, NeverLosesMoreThanTheTrialsCost) {
  for (const int64_t sequences : {1, 8, 64}) {
    const auto rows = static_cast<double>(sequences);
    for (const double acceptance : {0.0, 0.3, 0.6, 0.9}) {
      for (const double share : {0.0, 0.2, 0.5, 0.8, 1.0}) {  // of the time that rows take
        Machine machine{.pass_seconds = 1.0 - share,
                        .row_seconds = share / rows,
                        .acceptance = acceptance,
                        .sequences = sequences};
        EXPECT_GT(gain(machine), 0.98)
            << sequences << " sequences, " << acceptance << ", " << share;
      }
    }
  }
}

}  // namespace
}  // namespace klotski
