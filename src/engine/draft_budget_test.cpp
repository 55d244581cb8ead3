#include "engine/draft_budget.h"

#include <gtest/gtest.h>

#include <random>
#include <utility>
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
  for (int pass = 0; pass < 3; ++pass) {
    EXPECT_EQ(budget.explorers(8), 0) << "the first passes find caches cold";
    budget.pass_over(8, 0, 8, 1.0);
  }
  EXPECT_EQ(budget.explorers(8), 4);
  EXPECT_EQ(budget.explorers(1), 1);
}

TEST(PassTimesTest, FindTheCostOfARow) {
  for (const double row_seconds : {0.0, 0.01, 0.1, 1.0}) {
    PassTimes times;
    for (int pass = 0; pass < 40; ++pass) {
      const int64_t rows = pass % 4 == 0 ? 20 : 10;
      times.pass_over(rows, 1.0 + row_seconds * static_cast<double>(rows));
    }
    EXPECT_NEAR(times.row_seconds(), row_seconds, 0.02 * (row_seconds + 0.1)) << row_seconds;
  }
}

TEST(PassTimesTest, OnePassThatTookLongChangesLittle) {
  PassTimes times;
  for (int pass = 0; pass < 40; ++pass) times.pass_over(pass % 2 == 0 ? 20 : 10, 1.0);
  times.pass_over(20, 50.0);
  EXPECT_LT(times.row_seconds(), 0.1) << "4.9 if the pass were believed";
  for (int pass = 0; pass < 20; ++pass) times.pass_over(pass % 2 == 0 ? 20 : 10, 1.0);
  EXPECT_LT(times.row_seconds(), 0.01);
}

TEST(DraftBudgetTest, ARowIsWorthItsShareOfThePass) {
  DraftBudget budget(4, 100);
  for (int pass = 0; pass < 40; ++pass) {
    budget.pass_over(10, 0, 10, 2.0);
    budget.pass_over(20, 10, 10, 3.0);  // 0.1 s a row, 4 tokens a second
  }
  EXPECT_NEAR(budget.least_acceptance(), 0.4, 0.01);
  EXPECT_EQ(budget.worth(0.3), 0);
  EXPECT_EQ(budget.worth(0.5), 1);
  EXPECT_EQ(budget.worth(0.7), 2) << "0.49 is enough, 0.34 is not";
  EXPECT_EQ(budget.worth(0.99), 4);
}

TEST(DraftBudgetTest, SequencesExploreMoreAndMoreSeldom) {
  DraftBudget budget(4, 100);
  std::vector<int> explored;
  for (int pass = 0; pass < 600; ++pass) {
    const int64_t drafts = budget.explorers(8);
    if (drafts > 0) explored.push_back(pass);
    budget.pass_over(8 + drafts, drafts, 8, 1.0);
  }
  EXPECT_EQ(explored, (std::vector<int>{3, 36, 101, 230, 487}));

  DraftBudget nothing_found(4, 100);
  for (int pass = 0; pass < 5; ++pass) nothing_found.pass_over(8, 0, 8, 1.0);
  EXPECT_EQ(nothing_found.explorers(8), 4) << "no text had a draft so far";
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
  double noise = 0.03;  // deviation of a pass's time, as a share of it
  double acceptance = 0.0;
  int64_t sequences = 1;
  double first_pass = 1.0;  // the first pass takes this many times as long, the next ones less
  double warming = 0.0;     // share of that excess which a pass leaves to the next
};

double tokens_a_second(const Machine& machine, int64_t most_drafts, int passes) {
  std::mt19937_64 random(7);
  std::normal_distribution<double> deviation(1.0, machine.noise);
  std::uniform_real_distribution<double> chance(0.0, 1.0);
  DraftBudget budget(most_drafts, machine.sequences * (1 + most_drafts));
  std::vector<AcceptanceRate> rates(static_cast<size_t>(machine.sequences));
  double seconds = 0.0;
  double tokens = 0.0;
  double excess = machine.first_pass - 1.0;
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
                        std::max(deviation(random), 0.5) * (1.0 + excess);
    excess *= machine.warming;
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
  for (const double noise : {0.03, 0.12}) {
    for (const int64_t sequences : {1, 8, 64}) {
      const Machine machine{.pass_seconds = 1.0,
                            .row_seconds = 0.05 / static_cast<double>(sequences),
                            .noise = noise,
                            .acceptance = 0.8,
                            .sequences = sequences};
      EXPECT_GT(gain(machine), 2.2) << sequences << " sequences; 2.8 were possible";
      EXPECT_GT(gain(machine, 32), 1.8) << sequences << " sequences, short answers";
    }
  }
}

// Where drafts cannot gain, or only little, trials cost less than 3 %, also where the first passes
// take several times as long as the later ones.
TEST(DraftBudgetTest, LosesNoMoreThanItsTrialsCost) {
  const std::vector<std::pair<double, double>> starts = {
      {1.0, 0.0}, {2.0, 0.0}, {3.0, 0.0}, {10.0, 0.0}, {4.0, 0.8}};
  for (const auto& [first_pass, warming] : starts) {
    for (const auto& [noise, least] : {std::pair(0.03, 0.975), std::pair(0.12, 0.96)}) {
      for (const int64_t sequences : {1, 8, 64}) {
        for (const double acceptance : {0.0, 0.3, 0.6, 0.9}) {
          for (const double share : {0.0, 0.05, 0.2, 0.5, 0.8, 1.0}) {  // of the time: rows
            const Machine machine{.pass_seconds = 1.0 - share,
                                  .row_seconds = share / static_cast<double>(sequences),
                                  .noise = noise,
                                  .acceptance = acceptance,
                                  .sequences = sequences,
                                  .first_pass = first_pass,
                                  .warming = warming};
            EXPECT_GT(gain(machine), least)
                << sequences << " sequences, " << acceptance << " accepted, rows take " << share
                << ", the first " << first_pass << " times as long";
          }
        }
      }
    }
  }
}

// Texts that begin to repeat themselves late, and a machine that becomes slower: what was learnt
// before does not stay for ever.
TEST(DraftBudgetTest, WhatRowsCostIsLearntAnew) {
  DraftBudget budget(4, 1000);
  const auto pass = [&](double row_seconds) {
    const int64_t drafts =
        8 * budget.worth(0.6) + (budget.worth(0.6) == 0 ? budget.explorers(8) : 0);
    budget.pass_over(8 + drafts, drafts, 8 + drafts / 2,
                     1.0 + row_seconds * static_cast<double>(8 + drafts));
  };
  for (int i = 0; i < 300; ++i) pass(0.001);
  EXPECT_GT(budget.worth(0.6), 0);
  for (int i = 0; i < 600; ++i) pass(10.0);
  EXPECT_EQ(budget.worth(0.6), 0) << "rows take all of the time now";
  for (int i = 0; i < 600; ++i) pass(0.001);
  EXPECT_GT(budget.worth(0.6), 0);
}

}  // namespace
}  // namespace klotski
