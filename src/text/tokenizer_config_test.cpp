#include "text/tokenizer_config.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"

namespace klotski {
namespace {

class TokenizerConfigTest : public testing::Test {
 protected:
  TokenizerConfigTest() {
    folder_ = std::filesystem::path(testing::TempDir()) /
              testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~TokenizerConfigTest() override { std::filesystem::remove_all(folder_); }

  void write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name) << text;
  }

  std::filesystem::path folder_;
};

TEST_F(TokenizerConfigTest, EmptyFolderSaysNothing) {
  const TokenizerConfig config = TokenizerConfig::load(folder_);
  EXPECT_EQ(config.bos_token, "");
  EXPECT_FALSE(config.chat_template);
}

TEST_F(TokenizerConfigTest, TokensAsStringsObjectsAndFallback) {
  write("tokenizer_config.json",
        R"({"bos_token":{"content":"<s>","special":true},"eos_token":"</s>","pad_token":null})");
  write("special_tokens_map.json", R"({"pad_token":"<pad>","eos_token":"other"})");
  const TokenizerConfig config = TokenizerConfig::load(folder_);
  EXPECT_EQ(config.bos_token, "<s>");
  EXPECT_EQ(config.eos_token, "</s>");
  EXPECT_EQ(config.pad_token, "<pad>");
}

TEST_F(TokenizerConfigTest, NamedTemplates) {
  write("tokenizer_config.json",
        R"({"chat_template":[{"name":"default","template":"D"},{"name":"tool_use","template":"T"},)"
        R"({"name":"rag","template":"R"}]})");
  const TokenizerConfig config = TokenizerConfig::load(folder_);
  EXPECT_EQ(config.chat_template, "D");
  EXPECT_EQ(config.tool_use_template, "T");
}

TEST_F(TokenizerConfigTest, TemplateFilesComeFirst) {
  write("tokenizer_config.json", R"({"chat_template":"A"})");
  write("chat_template.json", R"({"chat_template":"B"})");
  EXPECT_EQ(TokenizerConfig::load(folder_).chat_template, "B");
  write("chat_template.jinja", "C");
  EXPECT_EQ(TokenizerConfig::load(folder_).chat_template, "C");
}

TEST_F(TokenizerConfigTest, WrongTypesAreRefused) {
  for (const std::string name : {"special_tokens_map.json", "tokenizer_config.json"}) {
    write(name, R"({"bos_token":5})");
    try {
      TokenizerConfig::load(folder_);
      ADD_FAILURE() << "expected an error";
    } catch (const Error& error) {
      const std::string quoted = path_in_quotes(folder_ / name);
      EXPECT_TRUE(std::string_view(error.what()).starts_with(quoted)) << error.what();
    }
  }
}

TEST(TokenizerConfigReal, Qwen3) {
  const TokenizerConfig config =
      TokenizerConfig::load(std::filesystem::path(KLOTSKI_TEST_DATA) / "tokenizers/qwen3-moe");
  EXPECT_EQ(config.eos_token, "<|im_end|>");
  ASSERT_TRUE(config.chat_template);
  EXPECT_NE(config.chat_template->find("im_start"), std::string::npos);
}

}  // namespace
}  // namespace klotski
