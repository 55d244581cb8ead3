#include <gtest/gtest.h>

#include "synth/testing.h"
#include "synth/tokenizer_files.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"
#include "text/tokenizer_config.h"

namespace klotski {
namespace {

using namespace testing_synth;

void write_files(const TokenizerFiles& files, const std::filesystem::path& folder) {
  for (const auto& file : files.files) write_file(folder / file.name, file.content);
}

TEST(ByteTokenizer, EveryTextComesBack) {
  ScratchFolder scratch;
  write_files(byte_tokenizer(0), scratch.path());
  const Tokenizer tokenizer = Tokenizer::load(scratch.path());
  EXPECT_EQ(static_cast<int64_t>(tokenizer.vocabulary_size()), byte_tokenizer_tokens());
  for (const std::string text : {"", "Hello, world!", " the others and that thing", "\n\t  x",
                                 "für 日本 🙂", "a\x01z"}) {
    const std::vector<TokenId> ids = tokenizer.encode(text, {});
    EXPECT_EQ(tokenizer.decode(ids), text);
  }
  EXPECT_EQ(tokenizer.encode(" the", {}).size(), 1u);
  EXPECT_EQ(tokenizer.encode("thing", {}).size(), 2u);  // th ing
}

TEST(ByteTokenizer, EveryIdHasATextOfItsOwn) {
  const auto file = byte_tokenizer(40'000).files.front();
  const Tokenizer tokenizer = Tokenizer::from_json(file.content, file.name);
  EXPECT_EQ(tokenizer.vocabulary_size(), 40'000u);
  for (TokenId id = 0; id < 40'000; ++id) {
    const auto text = tokenizer.text_of(id);
    ASSERT_TRUE(text.has_value()) << id;
    EXPECT_EQ(tokenizer.id_of(*text), id);
  }
  EXPECT_EQ(tokenizer.decode(std::vector<TokenId>{39'999}).front(), ' ');
}

TEST(ByteTokenizer, BeginsTextAndChats) {
  ScratchFolder scratch;
  const TokenizerFiles files = byte_tokenizer(300);
  write_files(files, scratch.path());
  const Tokenizer tokenizer = Tokenizer::load(scratch.path());
  EXPECT_EQ(tokenizer.encode("a", {.add_special = true}).front(), *files.begin_token);
  const TokenizerConfig config = TokenizerConfig::load(scratch.path());
  EXPECT_EQ(tokenizer.id_of(config.bos_token), files.begin_token);
  EXPECT_EQ(tokenizer.id_of(config.eos_token), files.end_token);
  const OrderedJson message = {{"role", "user"}, {"content", "Hi"}};
  const OrderedJson context = {{"messages", OrderedJson::array({message})},
                               {"bos_token", config.bos_token},
                               {"add_generation_prompt", true}};
  EXPECT_EQ(ChatTemplate::parse(*config.chat_template, "template").render(context),
            "<s>user: Hi\nassistant:");
}

TEST(CopiedTokenizer, IsThatOfTheFolder) {
  const std::filesystem::path tiny = std::filesystem::path(KLOTSKI_MODELS) / "tiny-mixtral";
  const TokenizerFiles files = copied_tokenizer(tiny);
  EXPECT_EQ(files.tokens, 4096);
  EXPECT_EQ(files.begin_token, 1);
  EXPECT_EQ(files.end_token, 2);
  ScratchFolder scratch;
  write_files(files, scratch.path());
  EXPECT_EQ(content_of(scratch.path() / "tokenizer.json"), content_of(tiny / "tokenizer.json"));
  EXPECT_FALSE(std::filesystem::exists(scratch.path() / "config.json"));
  EXPECT_EQ(kind_of([&] { copied_tokenizer(tiny / "none"); }), ErrorKind::usage);
  EXPECT_EQ(kind_of([&] { copied_tokenizer(KLOTSKI_TEST_DATA); }), ErrorKind::bad_model);
}

}  // namespace
}  // namespace klotski
