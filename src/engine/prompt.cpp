#include "engine/prompt.h"

#include <algorithm>

namespace klotski {

namespace {

// Two noncharacters, which no text for interchange holds, enclose what must stay text while a
// template moves it around.
constexpr std::string_view kLiteralBegin = "\xEF\xB7\x90";  // U+FDD0
constexpr std::string_view kLiteralEnd = "\xEF\xB7\x91";    // U+FDD1

std::string without(std::string_view text, std::string_view part) {
  std::string kept;
  for (size_t at = 0; at < text.size();) {
    const size_t found = std::min(text.find(part, at), text.size());
    kept += text.substr(at, found - at);
    at = found + part.size();
  }
  return kept;
}

// Encloses every special token's text inside a string that came from outside.
std::string enclosed(const std::string& outside, const Tokenizer& tokenizer) {
  const std::string text = without(without(outside, kLiteralBegin), kLiteralEnd);
  std::string out;
  size_t done = 0;
  for (const Span& range : tokenizer.find_special(text)) {
    out += text.substr(done, range.begin - done);
    out += kLiteralBegin;
    out += text.substr(range.begin, range.end - range.begin);
    out += kLiteralEnd;
    done = range.end;
  }
  return out + text.substr(done);
}

// Every string of a message, however deep; parse_ordered_json has bounded the depth.
void enclose_strings(OrderedJson& value, const Tokenizer& tokenizer) {
  if (value.is_string()) {
    value = enclosed(value.get_ref<const std::string&>(), tokenizer);
  } else if (value.is_structured()) {
    for (OrderedJson& element : value) enclose_strings(element, tokenizer);
  }
}

// Takes the marks out and returns where they stood.
std::vector<Span> take_literal_ranges(std::string& text) {
  std::vector<Span> ranges;
  std::string plain;
  size_t at = 0;
  while (true) {
    const size_t begin = text.find(kLiteralBegin, at);
    plain += text.substr(at, begin - at);
    if (begin == std::string::npos) break;
    const size_t inside = begin + kLiteralBegin.size();
    const size_t end = std::min(text.find(kLiteralEnd, inside), text.size());
    const size_t start = plain.size();
    plain += text.substr(inside, end - inside);
    ranges.push_back({start, plain.size()});
    at = std::min(end + kLiteralEnd.size(), text.size());
  }
  // A template may have cut a marked text in two: a lone mark means nothing.
  text = std::move(plain);
  return ranges;
}

}  // namespace

std::vector<TokenId> encode_text(const Tokenizer& tokenizer, const TokenizerConfig& config,
                                 const ModelDescription& model, std::string_view text,
                                 bool parse_special) {
  std::vector<TokenId> tokens =
      tokenizer.encode(text, {.add_special = true, .parse_special = parse_special});
  const bool tokenizer_adds = tokens != tokenizer.encode(text, {.parse_special = parse_special});
  const bool distinct_begin =
      model.begin_token && !config.bos_token.empty() && config.bos_token != config.eos_token;
  if (!tokenizer_adds && config.add_bos_token.value_or(distinct_begin) && model.begin_token) {
    tokens.insert(tokens.begin(), *model.begin_token);
  }
  return tokens;
}

std::vector<TokenId> encode_chat(const Tokenizer& tokenizer, const ChatTemplate& chat_template,
                                 OrderedJson context) {
  for (const char* name : {"messages", "tools", "documents"}) {
    if (context.contains(name)) enclose_strings(context[name], tokenizer);
  }
  std::string rendered = chat_template.render(context);
  const std::vector<Span> literal = take_literal_ranges(rendered);
  return tokenizer.encode(rendered, {.literal = literal});
}

}  // namespace klotski
