#include "engine/text_stream.h"

#include <gtest/gtest.h>

namespace klotski {
namespace {

const Tokenizer& streamed_tokenizer() {
  static const Tokenizer kTokenizer = Tokenizer::load(KLOTSKI_MODELS "/tiny-mixtral");
  return kTokenizer;
}

struct Streamed {
  std::string text;
  bool stopped;
  size_t tokens;  // pushed until it stopped
};

Streamed stream(const std::string& text, std::vector<std::string> stops) {
  TextStream out(streamed_tokenizer(), std::move(stops));
  Streamed result{};
  for (const TokenId token : streamed_tokenizer().encode(text, {})) {
    result.text += out.push(token);
    ++result.tokens;
    if (out.stopped()) break;
  }
  result.text += out.finish();
  result.stopped = out.stopped();
  return result;
}

TEST(TextStream, WithoutStopsGivesTheWholeText) {
  const std::string text = "A \xE4\xBD\xA0\xE5\xA5\xBD world \xF0\x9F\x98\x80!";
  EXPECT_EQ(stream(text, {}).text, text);
  EXPECT_FALSE(stream(text, {}).stopped);
}

TEST(TextStream, AContinuationKeepsTheSpaceThatATextWouldDrop) {
  const Tokenizer mixtral = Tokenizer::load(KLOTSKI_TEST_DATA "/tokenizers/mixtral-8x7b");
  const auto before = mixtral.encode("Once upon a", {});
  const auto next = mixtral.encode("time", {});  // the first token stands for " time"
  TextStream continued(mixtral, {}, before);
  EXPECT_EQ(continued.push(next[0]) + continued.finish(), " time");
  TextStream alone(mixtral, {});
  EXPECT_EQ(alone.push(next[0]) + alone.finish(), "time");
}

TEST(TextStream, EndsBeforeTheFirstStopString) {
  EXPECT_EQ(stream("one two three", {" three", "two"}).text, "one ");
  EXPECT_TRUE(stream("one two three", {"two"}).stopped);
}

TEST(TextStream, AStopStringAcrossTokensIsHeldBack) {
  const std::string text = "wait for\n\nUser: more";
  const Streamed result = stream(text, {"\n\nUser:"});
  EXPECT_EQ(result.text, "wait for");
  EXPECT_TRUE(result.stopped);
}

TEST(TextStream, WhatOnlyLookedLikeAStopIsReleased) {
  EXPECT_EQ(stream("abcabd", {"abcabx"}).text, "abcabd");
  EXPECT_EQ(stream("the end is near: ##", {"###"}).text, "the end is near: ##");
}

}  // namespace
}  // namespace klotski
