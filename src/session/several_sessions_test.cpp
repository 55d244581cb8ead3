// Several sessions in one process: the work of one must not show in the tokens of another.

#include <gtest/gtest.h>

#include "session/testing.h"

namespace klotski {
namespace {

using ::klotski::testing::Running;
using ::klotski::testing::tiny_model;
using ::klotski::testing::Tokens;

const Tokens kFirst = {{1, 7, 30, 31}, {1, 90}};
const Tokens kSecond = {{2, 3, 4}, {5, 6}, {9, 8, 7, 6, 5}};
constexpr int64_t kTokens = 8;

std::shared_ptr<const OpenedModel> other_model() {
  return open_model(std::string(KLOTSKI_TEST_DATA) + "/models/qwen3_moe");
}

std::unique_ptr<Session> loaded_session(std::shared_ptr<const OpenedModel> model,
                                        const Tokens& prompts) {
  SessionOptions options;
  options.device = "cpu";
  options.limits.expert_slots = 5;  // fewer than there are: experts come and go
  auto session = std::make_unique<Session>(std::move(model), options);
  session->plan(testing::workload_of(prompts, kTokens));
  session->load();
  return session;
}

Tokens alone(std::shared_ptr<const OpenedModel> model, const Tokens& prompts) {
  return testing::generate(*loaded_session(std::move(model), prompts), prompts, kTokens);
}

TEST(SeveralSessions, OneAfterTheOther) {
  const Tokens first = alone(tiny_model(), kFirst);
  const Tokens second = alone(other_model(), kSecond);
  EXPECT_EQ(alone(tiny_model(), kFirst), first);
  EXPECT_EQ(alone(other_model(), kSecond), second);
}

TEST(SeveralSessions, AtTheSameTime) {
  const Tokens first = alone(tiny_model(), kFirst);
  const Tokens second = alone(other_model(), kSecond);
  const auto one = loaded_session(tiny_model(), kFirst);
  const auto two = loaded_session(other_model(), kSecond);
  Running here(*one, kFirst, kTokens);
  Running there(*two, kSecond, kTokens);
  while (!here.ended() || !there.ended()) {
    if (!here.ended()) here.step();
    if (!there.ended()) there.step();
  }
  EXPECT_EQ(here.tokens(), first);
  EXPECT_EQ(there.tokens(), second);
}

TEST(SeveralSessions, OfOneModel) {
  const auto model = tiny_model();
  const Tokens expected = alone(model, kFirst);
  const auto one = loaded_session(model, kFirst);
  auto two = loaded_session(model, kFirst);
  Running here(*one, kFirst, kTokens);
  {
    Running there(*two, kFirst, kTokens);
    here.step();
    there.step();
  }
  two.reset();  // with requests under way
  while (!here.ended()) here.step();
  EXPECT_EQ(here.tokens(), expected);
}

}  // namespace
}  // namespace klotski
