#include "python/local_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <thread>

#include "session/testing.h"

namespace klotski {
namespace {

LocalModel::Options options() {
  LocalModel::Options options;
  options.session.device = "cpu";
  return options;
}

const std::string kTiny = std::string(KLOTSKI_MODELS) + "/tiny-mixtral";

LocalRequest request(std::vector<TokenId> prompt, int64_t tokens) {
  return {.request = {.prompt = std::move(prompt),
                      .sampling = {},
                      .max_tokens = tokens,
                      .stop_tokens = {}},
          .stop_strings = {}};
}

std::map<int64_t, LocalUpdate> finish_all(LocalModel& model) {
  std::map<int64_t, LocalUpdate> results;
  while (model.busy()) {
    for (LocalUpdate& update : model.step()) results.emplace(update.request, std::move(update));
  }
  return results;
}

TEST(LocalModel, GivesTheTokensOfASession) {
  const testing::Tokens prompts = {{1, 20, 30}, {1, 40}, {1, 50, 60, 70}};
  Session session(testing::tiny_model(), options().session);
  session.plan(testing::workload_of(prompts, 6));
  session.load();
  const testing::Tokens expected = testing::generate(session, prompts, 6);

  LocalModel model(kTiny, options());
  for (const auto& prompt : prompts) {
    LocalRequest asked = request(prompt, 6);
    asked.ignore_end = true;
    model.submit(std::move(asked));
  }
  const auto results = finish_all(model);
  ASSERT_EQ(results.size(), prompts.size());
  for (size_t i = 0; i < prompts.size(); ++i) {
    const LocalUpdate& result = results.at(static_cast<int64_t>(i));
    EXPECT_EQ(result.tokens, expected[i]);
    EXPECT_EQ(result.finish, Finish::length);
    EXPECT_GT(result.first_token_seconds, 0.0);
    EXPECT_GE(result.seconds, result.first_token_seconds);
  }
}

TEST(LocalModel, StreamsTheTextOfTheWholeAnswer) {
  LocalModel model(kTiny, options());
  LocalRequest asked = request(model.prompt_of("Once upon a time"), 8);
  model.submit(asked);
  const std::string whole = finish_all(model).at(0).text;
  asked.streamed = true;
  model.submit(asked);
  std::string text;
  int updates = 0;
  while (model.busy()) {
    for (const LocalUpdate& update : model.step()) {
      text += update.text;
      ++updates;
    }
  }
  EXPECT_EQ(text, whole);
  EXPECT_GT(updates, 1);
}

TEST(LocalModel, PlansAnewWhereLongerOrMoreRequestsCome) {
  LocalModel model(kTiny, options());
  model.submit(request({1, 2}, 2));
  model.submit(request({1, 2, 3, 4, 5}, 60));
  const auto results = finish_all(model);
  EXPECT_EQ(results.at(0).tokens.size(), 2U);
  EXPECT_EQ(results.at(1).finish, Finish::length);
  EXPECT_EQ(model.report()["passes"], 60);  // of the second plan
}

TEST(LocalModel, ForgetsCancelledRequests) {
  LocalModel model(kTiny, options());
  const int64_t running = model.submit(request({1, 2}, 200));
  model.step();
  const int64_t waiting = model.submit(request({1, 2}, 200));
  model.cancel(running);
  model.cancel(waiting);
  EXPECT_TRUE(finish_all(model).empty());
  EXPECT_FALSE(model.busy());
  model.submit(request({1, 2}, 3));
  EXPECT_EQ(finish_all(model).size(), 1U);
}

TEST(LocalModel, TakesRequestsFromOtherThreadsWhileItComputes) {
  LocalModel model(kTiny, options());
  model.expect({.sequences = 20, .prompt_tokens = 3, .generated_tokens = 5});
  std::thread other([&] {
    for (TokenId i = 0; i < 20; ++i) model.submit(request({1, 2, 3 + i}, 5));
  });
  std::map<int64_t, LocalUpdate> results;
  while (results.size() < 20) results.merge(finish_all(model));
  other.join();
  EXPECT_EQ(results.rbegin()->first, 19);
}

TEST(LocalModel, RefusesWrongRequestsAndTooLittleMemory) {
  LocalModel model(kTiny, options());
  EXPECT_THROW(model.submit(request({}, 5)), Error);
  EXPECT_THROW(model.submit(request({1'000'000}, 5)), Error);
  LocalModel::Options little = options();
  little.session.limits.ram_bytes = kMiB;
  EXPECT_THROW(LocalModel(kTiny, little), Error);
}

TEST(LocalModel, TellsWhereTokensWent) {
  LocalModel model(kTiny, options());
  const RoutedTokens routed = model.routed_tokens({{1, 2, 3}, {4, 5}});
  EXPECT_EQ(routed.token.size(), 5U);
  EXPECT_EQ(std::ssize(routed.choices), 5 * routed.shape.choices_per_token());
}

}  // namespace
}  // namespace klotski
