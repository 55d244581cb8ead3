#include "server/generation_stream.h"

#include <gtest/gtest.h>

namespace klotski {
namespace {

TEST(GenerationStream, EndsWhenEveryChoiceHasFinishedAndAllIsTaken) {
  GenerationStream stream(2, 1 << 20);
  EXPECT_TRUE(stream.push({.choice = 1, .text = "a", .finish = FinishReason::stop}));
  EXPECT_FALSE(stream.ended());
  EXPECT_EQ(stream.take().size(), 1U);
  EXPECT_FALSE(stream.ended());
  EXPECT_TRUE(stream.push({.choice = 0, .text = "b", .finish = FinishReason::length}));
  EXPECT_FALSE(stream.ended());
  EXPECT_EQ(stream.take().at(0).text, "b");
  EXPECT_TRUE(stream.ended());
  EXPECT_FALSE(stream.error());
}

TEST(GenerationStream, ASlowReaderLosesTheRequest) {
  GenerationStream stream(1, 2000);
  int64_t pushed = 0;
  while (stream.push({.text = "some text"})) ++pushed;
  EXPECT_GT(pushed, 2);
  EXPECT_LT(pushed, 2000 / 9);
  EXPECT_EQ(stream.error()->code(), "slow_reader");
  EXPECT_EQ(std::ssize(stream.take()), pushed);  // whatever came before is not lost
  EXPECT_TRUE(stream.ended());
  EXPECT_FALSE(stream.push({.text = "more"}));
}

TEST(GenerationStream, AReaderThatTakesIsNotSlow) {
  GenerationStream stream(1, 2000);
  for (int i = 0; i < 1000; ++i) {
    ASSERT_TRUE(stream.push({.text = "some text"}));
    stream.take();
  }
}

TEST(GenerationStream, AnAbandonedOneTakesNoMore) {
  GenerationStream stream(1, 2000);
  stream.abandon();
  EXPECT_FALSE(stream.push({.text = "a"}));
}

TEST(GenerationStream, TheFirstFailureIsTold) {
  GenerationStream stream(1, 2000);
  stream.fail({Status::timeout, "late"});
  stream.fail({Status::unavailable, "gone"});
  EXPECT_TRUE(stream.ended());
  EXPECT_EQ(stream.error()->status(), Status::timeout);
}

}  // namespace
}  // namespace klotski
