#include "session/serving.h"

#include <gtest/gtest.h>

#include "base/testing.h"
#include "session/testing.h"

namespace klotski {
namespace {

std::vector<TokenId> some_text() {
  std::vector<TokenId> text;
  for (TokenId token = 0; token < 300; ++token) text.push_back(token * 7 % 997 + 5);
  return text;
}

// The time goes on by a tenth of a second whenever it is asked for.
class TickingClock final : public ReplayClock {
 public:
  double seconds() override { return now_ += 0.1; }
  void wait_until(double seconds) override {
    waited_.push_back(seconds);
    now_ = std::max(now_, seconds);
  }
  const std::vector<double>& waited() const { return waited_; }

 private:
  double now_ = 100.0;
  std::vector<double> waited_;
};

Session cpu_session() {
  SessionOptions options;
  options.device = "cpu";
  options.engine = kServingEngine;
  return Session(testing::tiny_model(), options);
}

TEST(Serving, PromptsBeginAlikeWhereTheTraceSaysSo) {
  const ModelDescription model = testing::tiny_model()->description;
  std::vector<Arrival> arrivals = {
      {.prompt_tokens = 1000, .generated_tokens = 300, .blocks = {1, 2}},
      {.prompt_tokens = 700, .generated_tokens = 1, .blocks = {1, 3}},
      {.prompt_tokens = 600, .generated_tokens = 20},
      {.prompt_tokens = 600, .generated_tokens = 20}};
  const ServedWork work = work_from_arrivals(arrivals, 0.1, some_text(), model);
  ASSERT_EQ(work.requests.size(), 4u);
  EXPECT_EQ(work.cut, 0);
  const std::vector<TokenId>& first = work.requests[0].prompt;
  const std::vector<TokenId>& second = work.requests[1].prompt;
  EXPECT_EQ(first.size(), 100u);
  EXPECT_EQ(second.size(), 70u);
  EXPECT_EQ(work.requests[0].generate, 30);
  EXPECT_EQ(work.requests[1].generate, 1) << "an answer has a token";
  EXPECT_TRUE(std::equal(first.begin(), first.begin() + 51, second.begin()));
  EXPECT_NE(first[51], second[51]);
  EXPECT_NE(work.requests[2].prompt, work.requests[3].prompt);
  const Workload workload = work.workload(model, 4);
  EXPECT_EQ(workload.sequences, 4);
  EXPECT_EQ(workload.tokens_per_sequence, 130);
  EXPECT_EQ(workload.prompt_tokens, 100);
  EXPECT_EQ(workload.typical_tokens, (130 + 71 + 62 + 62) / 4);
  EXPECT_EQ(workload.generated_tokens, (30 + 1 + 2 + 2) / 4);
}

TEST(Serving, LongRequestsAreCutToTheModel) {
  const ModelDescription model = testing::tiny_model()->description;  // 1024 positions
  const std::vector<Arrival> arrivals = {{.prompt_tokens = 5000, .generated_tokens = 24},
                                         {.prompt_tokens = 10, .generated_tokens = 5000},
                                         {.prompt_tokens = 1000, .generated_tokens = 24}};
  const ServedWork work = work_from_arrivals(arrivals, 1.0, some_text(), model);
  EXPECT_EQ(work.cut, 2);
  EXPECT_EQ(work.requests[0].prompt.size(), 1000u);
  EXPECT_EQ(work.requests[0].generate, 24);
  EXPECT_EQ(work.requests[1].generate, 512);
  EXPECT_EQ(work.requests[2].prompt.size(), 1000u);
  EXPECT_NE(refusal([&] { work_from_arrivals(arrivals, 1.0, {}, model); }).find("--text"),
            std::string::npos);
}

// Passes end a tenth of a second after each other, and each asks for the time once more.
TEST(Serving, TimesBeginWhenRequestsCome) {
  Session session = cpu_session();
  const ServedWork work{.requests = {{.arrival = 0.0, .prompt = {5, 6, 7}, .generate = 3},
                                     {.arrival = 5.0, .prompt = {5, 6}, .generate = 1},
                                     {.arrival = 5.15, .prompt = {9}, .generate = 2}}};
  TickingClock clock;
  std::vector<size_t> ended;
  const ServingMeasurement measured =
      measure_serving(session, work, 4, clock, [&](size_t count) { ended.push_back(count); });
  EXPECT_EQ(ended, (std::vector<size_t>{0, 0, 1, 2, 2, 3}));
  ASSERT_EQ(clock.waited().size(), 1u) << "an engine that is idle waits for the next request";
  EXPECT_NEAR(clock.waited()[0], 105.1, 1e-9);
  ASSERT_EQ(measured.requests.size(), 3u);
  EXPECT_NEAR(measured.requests[0].first_token, 0.2, 1e-9);
  EXPECT_NEAR(measured.requests[0].last_token, 0.6, 1e-9);
  EXPECT_NEAR(measured.requests[0].per_token().value(), 0.2, 1e-9);
  EXPECT_NEAR(measured.requests[1].first_token, 0.1, 1e-9);
  EXPECT_EQ(measured.requests[1].per_token(), std::nullopt);
  EXPECT_NEAR(measured.requests[2].first_token, 0.15, 1e-9);
  EXPECT_EQ(measured.requests[2].tokens.size(), 2u);
  EXPECT_NEAR(measured.seconds, 5.6, 1e-9);
}

TEST(Serving, RequestsGetTheTokensThatTheyGetAlone) {
  Session session = cpu_session();
  std::vector<Arrival> arrivals;
  for (int64_t i = 0; i < 12; ++i) {
    arrivals.push_back({.seconds = 0.3 * static_cast<double>(i),
                        .prompt_tokens = 520 + i % 3 * 400,
                        .generated_tokens = 20 + 40 * (i % 4),
                        .blocks = {1, 2 + i % 2}});
  }
  const ServedWork work = work_from_arrivals(arrivals, 0.1, some_text(), session.description());
  TickingClock clock;
  const ServingMeasurement measured = measure_serving(session, work, 4, clock);
  EXPECT_GT(measured.counters.prefix.hits, 5);
  for (size_t i = 0; i < work.requests.size(); ++i) {
    const TimedRequest& request = work.requests[i];
    EXPECT_EQ(measured.requests[i].tokens,
              testing::generate(session, {request.prompt}, request.generate).front());
  }
}

TEST(Serving, FiguresAreThoseOfTheDefinition) {
  ServingMeasurement measured;
  measured.seconds = 4.0;
  const auto add = [&](double first, double last, size_t tokens) {
    measured.requests.push_back({first, last, std::vector<TokenId>(tokens)});
  };
  add(0.5, 1.0, 6);  // 0.1 s a token
  add(2.0, 2.5, 6);  // the first token is late
  add(0.5, 2.5, 6);  // the others are
  add(1.0, 1.0, 1);  // has no others
  const ServingFigures figures = figures_of(measured, {.first_token = 1.0, .per_token = 0.11});
  EXPECT_EQ(figures.within_target, 2);
  EXPECT_DOUBLE_EQ(figures.goodput, 0.5);
  EXPECT_DOUBLE_EQ(figures.requests_per_second, 1.0);
  EXPECT_DOUBLE_EQ(figures.tokens_per_second, 19.0 / 4.0);
  EXPECT_DOUBLE_EQ(figures.first_token.median, 0.5);
  EXPECT_DOUBLE_EQ(figures.first_token.p99, 2.0);
  EXPECT_DOUBLE_EQ(figures.per_token.median, 0.1);
  EXPECT_DOUBLE_EQ(figures.per_token.p99, 0.4);
  std::vector<double> hundred;
  for (int i = 200; i > 0; --i) hundred.push_back(i);
  EXPECT_EQ(quantiles_of(hundred).median, 100.0);
  EXPECT_EQ(quantiles_of(hundred).p99, 198.0);
  EXPECT_EQ(quantiles_of({}).p99, 0.0);
}

TEST(Serving, TheSteadyClockWaits) {
  SteadyClock clock;
  const double soon = clock.seconds() + 0.01;
  clock.wait_until(soon);
  EXPECT_GE(clock.seconds(), soon);
}

}  // namespace
}  // namespace klotski
