#include "cli/chat_commands.h"

#include <gtest/gtest.h>

namespace klotski {
namespace {

TEST(ChatCommands, NamesAndArguments) {
  const auto save = parse_chat_command("/save  my chat.json \r");
  ASSERT_TRUE(save);
  EXPECT_EQ(save->kind, ChatCommand::Kind::save);
  EXPECT_EQ(save->argument, "my chat.json");
  const auto system = parse_chat_command("/system");
  ASSERT_TRUE(system);
  EXPECT_EQ(system->kind, ChatCommand::Kind::system);
  EXPECT_EQ(system->argument, "");
  EXPECT_EQ(parse_chat_command("/help")->kind, ChatCommand::Kind::help);
  EXPECT_EQ(parse_chat_command("/clear ")->kind, ChatCommand::Kind::clear);
}

TEST(ChatCommands, AnUnknownNameIsNamed) {
  const auto unknown = parse_chat_command("/sav file");
  ASSERT_TRUE(unknown);
  EXPECT_EQ(unknown->kind, ChatCommand::Kind::unknown);
  EXPECT_EQ(unknown->argument, "sav");
}

TEST(ChatCommands, MessagesAreNoCommands) {
  for (const char* line : {"", "hello", " /help", "/", "//", "/usr/bin", "/1", "/ save",
                           "/save one\nand two", "/h\xC3\xA9lp"}) {
    EXPECT_FALSE(parse_chat_command(line)) << line;
  }
}

TEST(ChatCommands, HelpFitsNarrowTerminals) {
  const std::string help = chat_help();
  for (const char* name : {"/help", "/clear", "/system TEXT", "/save FILE", "Ctrl-C", "Ctrl-D"}) {
    EXPECT_NE(help.find(name), std::string::npos) << name;
  }
  size_t longest = 0;
  for (size_t at = 0; at < help.size();) {
    const size_t end = help.find('\n', at);
    longest = std::max(longest, end - at);
    at = end + 1;
  }
  EXPECT_LE(longest, 60U);
}

}  // namespace
}  // namespace klotski
