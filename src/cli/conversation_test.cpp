#include "cli/conversation.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace klotski {
namespace {

Conversation three_exchanges() {
  Conversation chat("Be kind.");
  chat.add({"one", "1"});
  chat.add({"two", "2"});
  chat.add({"three", "3"});
  return chat;
}

TEST(Conversation, MessagesBeginWithTheSystemMessage) {
  const Conversation chat = three_exchanges();
  const OrderedJson all = chat.messages("four", 0);
  ASSERT_EQ(all.size(), 8U);
  EXPECT_EQ(all[0]["role"], "system");
  EXPECT_EQ(all[2]["role"], "assistant");
  EXPECT_EQ(all[7]["content"], "four");
  const OrderedJson newer = chat.messages("four", 2);
  ASSERT_EQ(newer.size(), 4U);
  EXPECT_EQ(newer[0]["content"], "Be kind.");
  EXPECT_EQ(newer[1]["content"], "three");
  EXPECT_EQ(Conversation().messages("hello", 0).size(), 1U);
}

TEST(Conversation, TextIsContinued) {
  const Conversation chat = three_exchanges();
  EXPECT_EQ(chat.text("four", 0), "one1\ntwo2\nthree3\nfour");
  EXPECT_EQ(chat.text("four", 3), "four");
}

TEST(Conversation, ExchangesLeftOutAreStillSaved) {
  Conversation chat = three_exchanges();
  chat.leave_out(1);
  EXPECT_EQ(chat.remembered(), 2U);
  EXPECT_EQ(chat.text("four", 0), "two2\nthree3\nfour");
  EXPECT_EQ(chat.all_messages().size(), 7U);
  chat.leave_out(99);
  EXPECT_EQ(chat.remembered(), 0U);
  chat.clear();
  EXPECT_EQ(chat.all_messages().size(), 1U);
  chat.add({"again", "yes"});
  EXPECT_EQ(chat.remembered(), 1U);
}

// A prompt of 10 tokens, and 20 more for each of 3 exchanges.
std::vector<TokenId> encode_of(size_t left_out) {
  return std::vector<TokenId>(10 + 20 * (3 - left_out));
}

TEST(FitPrompt, LeavesOutTheFewestExchanges) {
  EXPECT_EQ(fit_prompt(encode_of, 3, {100, 30}).left_out, 0U);
  EXPECT_EQ(fit_prompt(encode_of, 3, {99, 30}).left_out, 1U);
  EXPECT_EQ(fit_prompt(encode_of, 3, {99, 30}).tokens.size(), 50U);
  EXPECT_EQ(fit_prompt(encode_of, 3, {41, 30}).left_out, 3U);
}

TEST(FitPrompt, AQuestionAloneMayLeaveLittleRoomButNotNone) {
  EXPECT_EQ(fit_prompt(encode_of, 3, {11, 30}).left_out, 3U);
  EXPECT_THROW(fit_prompt(encode_of, 3, {10, 30}), Error);
  EXPECT_THROW(fit_prompt([](size_t) { return std::vector<TokenId>(50); }, 0, {50, 0}), Error);
}

}  // namespace
}  // namespace klotski
