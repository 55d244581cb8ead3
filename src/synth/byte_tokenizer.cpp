#include <algorithm>
#include <array>
#include <string_view>

#include "base/json.h"
#include "synth/tokenizer_files.h"
#include "text/byte_level.h"

namespace klotski {

namespace {

constexpr std::array<std::string_view, 3> kSpecial = {"<pad>", "<s>", "</s>"};
constexpr TokenId kBegin = 1;
constexpr TokenId kEnd = 2;
constexpr int64_t kBytes = 256;

// Frequent pairs of English, each of parts that are single letters or made by a pair before it.
struct Pair {
  std::string_view left;
  std::string_view right;
};
constexpr std::array kPairs = {
    Pair{"t", "h"},   Pair{"i", "n"},   Pair{"a", "n"},  Pair{"e", "r"},    Pair{"o", "n"},
    Pair{"r", "e"},   Pair{"a", "t"},   Pair{"o", "r"},  Pair{"e", "n"},    Pair{"i", "s"},
    Pair{"i", "t"},   Pair{"a", "l"},   Pair{"a", "r"},  Pair{"e", "s"},    Pair{"o", "u"},
    Pair{"e", "d"},   Pair{"l", "y"},   Pair{"th", "e"}, Pair{"an", "d"},   Pair{"in", "g"},
    Pair{"th", "at"}, Pair{"y", "ou"},  Pair{"f", "or"}, Pair{"o", "f"},    Pair{"t", "o"},
    Pair{" ", "a"},   Pair{" ", "the"}, Pair{" ", "of"}, Pair{" ", "and"},  Pair{" ", "to"},
    Pair{" ", "in"},  Pair{" ", "is"},  Pair{" ", "it"}, Pair{" ", "that"}, Pair{" ", "you"},
    Pair{" ", "for"},
};

// Larger vocabularies leave their last ids without text.
constexpr int64_t kMaxTokens = 1 << 18;

constexpr std::string_view kTemplate =
    "{{ bos_token }}{% for message in messages %}{{ message.role }}: {{ message.content }}\n"
    "{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}";

// " bababa", " bababe", ...: a word of at least three syllables, longer than any pair's result.
std::string made_up_word(int64_t number) {
  constexpr std::string_view kConsonants = "bdfghjklmnprstvz";
  constexpr std::string_view kVowels = "aeiou";
  constexpr auto kSyllables = static_cast<int64_t>(kConsonants.size() * kVowels.size());
  std::string word;
  for (int syllable = 0; syllable < 3 || number > 0; ++syllable, number /= kSyllables) {
    const auto digit = static_cast<size_t>(number % kSyllables);
    const char text[] = {kConsonants[digit / kVowels.size()], kVowels[digit % kVowels.size()]};
    word.insert(0, text, 2);
  }
  return " " + word;
}

OrderedJson vocabulary_of(int64_t tokens) {
  OrderedJson::object_t entries;
  int64_t next = 0;
  const auto add = [&](std::string text) { entries.emplace_back(std::move(text), next++); };
  for (const std::string_view special : kSpecial) add(std::string(special));
  for (int byte = 0; byte < kBytes; ++byte)
    add(to_byte_level(std::string(1, static_cast<char>(byte))));
  for (const Pair& pair : kPairs)
    add(to_byte_level(std::string(pair.left) + std::string(pair.right)));
  for (int64_t id = next; id < tokens; ++id) add(to_byte_level(made_up_word(id)));
  return entries;
}

OrderedJson special_tokens() {
  OrderedJson list = OrderedJson::array();
  for (size_t id = 0; id < kSpecial.size(); ++id) {
    list.push_back({{"id", id},
                    {"content", kSpecial[id]},
                    {"single_word", false},
                    {"lstrip", false},
                    {"rstrip", false},
                    {"normalized", false},
                    {"special", true}});
  }
  return list;
}

OrderedJson byte_level() {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", false},
          {"trim_offsets", true},
          {"use_regex", true}};
}

OrderedJson merges() {
  OrderedJson list = OrderedJson::array();
  for (const Pair& pair : kPairs) {
    list.push_back(to_byte_level(pair.left) + " " + to_byte_level(pair.right));
  }
  return list;
}

OrderedJson begin_first() {
  const OrderedJson begin = {{"SpecialToken", {{"id", kSpecial[kBegin]}, {"type_id", 0}}}};
  const auto text = [](const char* id, int type) {
    return OrderedJson{{"Sequence", {{"id", id}, {"type_id", type}}}};
  };
  const std::string name(kSpecial[kBegin]);
  return {{"type", "TemplateProcessing"},
          {"single", OrderedJson::array({begin, text("A", 0)})},
          {"pair", OrderedJson::array({begin, text("A", 0), text("B", 1)})},
          {"special_tokens", {{name, {{"id", name}, {"ids", {kBegin}}, {"tokens", {name}}}}}}};
}

OrderedJson tokenizer_json(int64_t tokens) {
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", special_tokens()},
          {"normalizer", nullptr},
          {"pre_tokenizer", byte_level()},
          {"post_processor", begin_first()},
          {"decoder", byte_level()},
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", nullptr},
            {"continuing_subword_prefix", nullptr},
            {"end_of_word_suffix", nullptr},
            {"fuse_unk", false},
            {"byte_fallback", false},
            {"vocab", vocabulary_of(tokens)},
            {"merges", merges()}}}};
}

}  // namespace

int64_t byte_tokenizer_tokens() {
  return static_cast<int64_t>(kSpecial.size()) + kBytes + static_cast<int64_t>(kPairs.size());
}

TokenizerFiles byte_tokenizer(int64_t vocabulary) {
  TokenizerFiles result;
  result.tokens = std::max(byte_tokenizer_tokens(), std::min(vocabulary, kMaxTokens));
  result.begin_token = kBegin;
  result.end_token = kEnd;
  const OrderedJson config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                              {"bos_token", kSpecial[kBegin]},
                              {"eos_token", kSpecial[kEnd]},
                              {"pad_token", kSpecial[0]},
                              {"clean_up_tokenization_spaces", false},
                              {"chat_template", kTemplate}};
  result.files.push_back({"tokenizer.json", tokenizer_json(result.tokens).dump() + "\n"});
  result.files.push_back({"tokenizer_config.json", config.dump(2) + "\n"});
  return result;
}

}  // namespace klotski
