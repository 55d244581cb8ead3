#include "engine/prompt.h"

#include <algorithm>

#include "base/error.h"
#include "text/utf8.h"

namespace klotski {

namespace {

// A noncharacter, which no text for interchange holds: it marks characters that must stay text
// while a template moves them around.
constexpr std::string_view kLiteralMark = "\xEF\xB7\x90";  // U+FDD0

std::string without(std::string_view text, std::string_view part) {
  std::string kept;
  for (size_t at = 0; at < text.size();) {
    const size_t found = std::min(text.find(part, at), text.size());
    kept += text.substr(at, found - at);
    at = found + part.size();
  }
  return kept;
}

// Puts a mark behind every character of each special token's text inside a string that came from
// outside: however a template cuts the string, each piece of such a text keeps a mark.
std::string marked(const std::string& outside, const Tokenizer& tokenizer) {
  std::string valid;
  append_lossy_utf8(valid, outside);
  const std::string text = without(valid, kLiteralMark);
  std::string out;
  size_t done = 0;
  for (const Span& span : tokenizer.find_special(text)) {
    out += text.substr(done, span.begin - done);
    for (size_t at = span.begin; at < span.end; ++at) {
      out += text[at];
      const bool character_ends = at + 1 == text.size() || (text[at + 1] & 0xC0) != 0x80;
      if (character_ends) out += kLiteralMark;
    }
    done = span.end;
  }
  return out + text.substr(done);
}

// Every string of a message, keys included, however deep; parse_ordered_json has bounded the depth.
OrderedJson with_strings_marked(const OrderedJson& value, const Tokenizer& tokenizer) {
  if (value.is_string()) return marked(value.get_ref<const std::string&>(), tokenizer);
  if (!value.is_structured()) return value;
  OrderedJson result = value.is_array() ? OrderedJson::array() : OrderedJson::object();
  for (const auto& item : value.items()) {
    OrderedJson element = with_strings_marked(item.value(), tokenizer);
    if (value.is_array()) {
      result.push_back(std::move(element));
    } else {
      result[marked(item.key(), tokenizer)] = std::move(element);
    }
  }
  return result;
}

// Rendered text without the marks, and where they stood in it.
struct Unmarked {
  std::string text;
  std::vector<size_t> marks;  // ascending
};

Unmarked take_marks_out(std::string_view rendered) {
  Unmarked result;
  for (size_t at = 0; at < rendered.size();) {
    const size_t mark = std::min(rendered.find(kLiteralMark, at), rendered.size());
    result.text += rendered.substr(at, mark - at);
    if (mark < rendered.size()) result.marks.push_back(result.text.size());
    at = mark + kLiteralMark.size();
  }
  return result;
}

// Special tokens that came from outside: with a mark inside, or behind their only character. A mark
// at the end of a longer one may belong to the text that follows.
std::vector<Span> literal_spans(const Unmarked& unmarked, const Tokenizer& tokenizer) {
  const auto is_continuation = [&](size_t at) { return (unmarked.text[at] & 0xC0) == 0x80; };
  std::vector<Span> spans;
  for (const Span& token : tokenizer.find_special(unmarked.text)) {
    size_t first_end = token.begin + 1;  // end of its first character
    while (first_end < token.end && is_continuation(first_end)) ++first_end;
    const size_t last = first_end == token.end ? token.end : token.end - 1;
    const auto mark = std::upper_bound(unmarked.marks.begin(), unmarked.marks.end(), token.begin);
    if (mark != unmarked.marks.end() && *mark <= last) spans.push_back(token);
  }
  return spans;
}

}  // namespace

std::vector<TokenId> encode_text(const Tokenizer& tokenizer, const TokenizerConfig& config,
                                 const ModelDescription& model, std::string_view text,
                                 bool parse_special) {
  parse_special = parse_special || model.encoder;
  std::vector<TokenId> tokens =
      tokenizer.encode(text, {.add_special = true, .parse_special = parse_special});
  const bool tokenizer_adds = tokens != tokenizer.encode(text, {.parse_special = parse_special});
  if (model.encoder) {
    if (!tokenizer_adds && !model.end_tokens.empty()) tokens.push_back(model.end_tokens[0]);
    return tokens;
  }
  const bool distinct_begin =
      model.begin_token && !config.bos_token.empty() && config.bos_token != config.eos_token;
  if (!tokenizer_adds && config.add_bos_token.value_or(distinct_begin) && model.begin_token) {
    tokens.insert(tokens.begin(), *model.begin_token);
  }
  return tokens;
}

std::vector<TokenId> language_prompt(const Tokenizer& tokenizer, const ModelDescription& model,
                                     const std::string& language) {
  if (language.empty()) return {};
  if (!model.encoder || !model.encoder->translates) {
    fail(ErrorKind::usage,
         "--target-language: expected a model that translates, such as NLLB-MoE; leave it out");
  }
  const std::optional<TokenId> token = tokenizer.id_of(language);
  if (!token) {
    fail(ErrorKind::usage,
         "--target-language: expected the code of a language that the tokenizer has as a token, "
         "such as fra_Latn, found {}",
         in_quotes(language));
  }
  return {*token};
}

void check_tokens(const ModelDescription& model, std::span<const TokenId> tokens,
                  std::string_view what) {
  for (const TokenId token : tokens) {
    if (token >= 0 && token < model.vocabulary) continue;
    fail(ErrorKind::usage, "token id {} of the {} is outside the vocabulary of {}", token, what,
         model.vocabulary);
  }
}

OrderedJson chat_context(const TokenizerConfig& config, OrderedJson messages) {
  return {{"messages", std::move(messages)}, {"tools", nullptr},
          {"add_generation_prompt", true},   {"bos_token", config.bos_token},
          {"eos_token", config.eos_token},   {"pad_token", config.pad_token},
          {"unk_token", config.unk_token}};
}

std::vector<TokenId> encode_chat(const Tokenizer& tokenizer, const ChatTemplate& chat_template,
                                 OrderedJson context) {
  for (const char* name : {"messages", "tools", "documents"}) {
    if (context.contains(name)) context[name] = with_strings_marked(context[name], tokenizer);
  }
  const Unmarked prompt = take_marks_out(chat_template.render(context));
  const std::vector<Span> literal = literal_spans(prompt, tokenizer);
  return tokenizer.encode(prompt.text, {.literal = literal});
}

}  // namespace klotski
