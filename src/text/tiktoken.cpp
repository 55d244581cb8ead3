#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/numbers.h"
#include "text/base64.h"
#include "text/bpe.h"
#include "text/byte_level.h"
#include "text/tokenizer_parts.h"

namespace klotski {

namespace {

// Lines of "BASE64 RANK"; the rank is the token's id. Tokens are kept in their byte-level spelling.
void read_ranks(std::string_view text, const std::string& what, Vocabulary& vocabulary) {
  size_t line_number = 0;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    ++line_number;
    if (line.empty()) continue;
    const size_t space = line.find(' ');
    const auto bytes = decode_base64(line.substr(0, space));
    const auto rank =
        space == std::string_view::npos ? std::nullopt : parse_int(line.substr(space + 1));
    if (!bytes || bytes->empty() || !rank) {
      fail(ErrorKind::bad_model, "{}: line {}: expected a token in base64 and its rank, found {}",
           what, line_number, in_quotes(line));
    }
    vocabulary.add(to_byte_level(*bytes), *rank, what);
  }
  for (int byte = 0; byte < 256; ++byte) {
    const char letter = static_cast<char>(byte);
    if (!vocabulary.find(to_byte_level({&letter, 1}))) {
      fail(ErrorKind::bad_model, "{}: the single byte {} has no rank", what, byte);
    }
  }
}

void add_special_tokens(const JsonFields& fields, const std::string& what, TokenizerParts& parts) {
  const Json* table = fields.find("special_tokens");
  if (!table || !table->is_object()) fields.refuse("special_tokens", "an object from text to id");
  const auto special = fields.object("special_tokens");
  for (const auto& entry : table->items()) {
    AddedToken token;
    token.content = entry.key();
    token.id = static_cast<TokenId>(special->integer(entry.key(), 0, kMaxTokenIds - 1));
    token.special = true;
    parts.added.add(std::move(token), parts.vocabulary, what);
  }
  parts.added.build(nullptr, what);
}

}  // namespace

std::shared_ptr<const TokenizerParts> parse_tiktoken(std::string_view ranks,
                                                     std::string_view description,
                                                     const std::string& what) {
  const std::string described = what + " (its JSON)";
  const Json document = parse_json(description, described, ErrorKind::bad_model,
                                   {.wanted = {"pattern", "special_tokens"}});
  const JsonFields fields(document, described);
  auto parts = std::make_shared<TokenizerParts>();
  read_ranks(ranks, what, parts->vocabulary);
  parts->pretokenizer.steps.push_back(
      make_regex_split(Regex(fields.string("pattern"), RegexDialect::rust, described)));
  parts->pretokenizer.spell_bytes = true;
  std::vector<uint32_t> order(parts->vocabulary.end_id());
  for (size_t id = 0; id < order.size(); ++id) order[id] = static_cast<uint32_t>(id);
  BpeOptions options;
  options.whole_words_first = true;
  parts->model = std::make_unique<BpeModel>(parts->vocabulary, std::move(order), options);
  parts->decoder = make_tiktoken_decoder();
  add_special_tokens(fields, described, *parts);
  return parts;
}

}  // namespace klotski
