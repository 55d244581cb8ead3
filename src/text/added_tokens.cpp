#include "text/added_tokens.h"

#include <algorithm>
#include <utility>

#include "base/bytes.h"
#include "base/error.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace klotski {

namespace {

// Bounds the work per character of text.
constexpr size_t kLongestAddedToken = 1024;
// Normalising makes tokens longer, for instance where every space becomes three bytes.
constexpr size_t kLongestSpelling = 4 * kLongestAddedToken;
// Bounds the memory for the tries, which take up to 64 bytes per byte of spelling.
constexpr size_t kMaxSpellingBytes = 16 * kMiB;

size_t last_character(std::string_view text) {
  size_t at = text.size() - 1;
  while (at > 0 && is_utf8_continuation(text[at])) --at;
  return at;
}

// The begin of the white space before `end`, but not before `least`.
size_t space_before(std::string_view text, size_t least, size_t end) {
  while (end > least) {
    const size_t at = last_character(text.substr(0, end));
    if (!is_white_space(decode_utf8(text, at).code)) break;
    end = at;
  }
  return end;
}

size_t space_after(std::string_view text, size_t begin) {
  while (begin < text.size()) {
    const Utf8Char next = decode_utf8(text, begin);
    if (!is_white_space(next.code)) break;
    begin += next.bytes;
  }
  return begin;
}

}  // namespace

void AddedTokens::add(AddedToken token, const Vocabulary& vocabulary, const std::string& what) {
  if (token.content.empty() || token.content.size() > kLongestAddedToken) {
    fail(ErrorKind::bad_model, "{}: added token {}: expected a text of 1 to {} bytes, found {}",
         what, token.id, kLongestAddedToken, token.content.size());
  }
  // The model's own id for the token's text wins, as the embeddings belong to it.
  token.id = vocabulary.find(token.content).value_or(token.id);
  const std::string_view owner = vocabulary.text(token.id);
  if (vocabulary.has(token.id) && owner != token.content) {
    fail(ErrorKind::bad_model, "{}: added token {} has id {}, which belongs to {}", what,
         in_quotes(token.content), token.id, in_quotes(owner));
  }
  if (const AddedToken* other = find(token.content)) {
    if (other->id == token.id) return;
    fail(ErrorKind::bad_model, "{}: added token {} appears twice, with ids {} and {}", what,
         in_quotes(token.content), other->id, token.id);
  }
  if (const AddedToken* other = find(token.id)) {
    fail(ErrorKind::bad_model, "{}: id {} is given to both {} and {}", what, token.id,
         in_quotes(other->content), in_quotes(token.content));
  }
  by_id_.emplace(token.id, tokens_.size());
  by_content_.emplace(token.content, tokens_.size());
  end_id_ = std::max(end_id_, static_cast<size_t>(token.id) + 1);
  tokens_.push_back(std::move(token));
}

void AddedTokens::build(const Normalizer* normalizer, const std::string& what) {
  word_.emplace(R"(\w)", RegexDialect::rust, "single_word");
  size_t total_bytes = 0;
  // Where spellings are equal after normalisation, the first token that is not special wins: it is
  // put in last.
  for (const bool special : {true, false}) {
    for (size_t i = tokens_.size(); i-- > 0;) {
      AddedToken& token = tokens_[i];
      if (token.special != special) continue;
      token.spelled = token.content;
      if (token.normalized && normalizer) normalizer->rewrite(token.spelled, kLongestSpelling);
      total_bytes += token.spelled.size();
      if (total_bytes > kMaxSpellingBytes) {
        fail(ErrorKind::bad_model, "{}: the added tokens take more than {}, the last being {}",
             what, format_bytes(kMaxSpellingBytes), in_quotes(token.content));
      }
      (token.normalized ? normalized_ : raw_).insert(token.spelled, static_cast<int32_t>(i));
    }
  }
}

bool AddedTokens::stands_alone(std::string_view text, Span match) const {
  const auto is_word = [&](size_t at) {
    Span found;
    const std::string_view character = text.substr(at, utf8_bytes(text[at]));
    return RegexMatches(*word_, character).next(&found);
  };
  if (match.begin > 0 && is_word(last_character(text.substr(0, match.begin)))) return false;
  return match.end >= text.size() || !is_word(match.end);
}

std::vector<Segment> AddedTokens::split(std::string_view text, Pass pass,
                                        std::span<const Span> literal) const {
  std::vector<Segment> segments;
  const ByteTrie& keys = trie(pass);
  size_t done = 0;
  Span space;  // the white space walked over last: it is not walked over for every token in it
  for (size_t at = 0; at < text.size() && !keys.empty();) {
    const ByteTrie::Match match = keys.longest(text, at);
    if (match.bytes == 0) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[static_cast<size_t>(match.value)];
    Span span = {at, at + match.bytes};
    at = span.end;
    while (!literal.empty() && literal.front().end <= span.begin) literal = literal.subspan(1);
    const bool is_literal = !literal.empty() && literal.front().begin < span.end;
    if (is_literal && token.special) continue;
    if (token.single_word && !stands_alone(text, span)) continue;
    // Space that the token before has taken is gone.
    if (token.left_strip) span.begin = std::max(space_before(text, done, span.begin), done);
    if (token.right_strip) {
      const bool known = space.begin <= span.end && span.end <= space.end;
      if (!known) space = {span.end, space_after(text, span.end)};
      span.end = space.end;
    }
    if (span.begin >= span.end) continue;
    if (done < span.begin) segments.push_back({{done, span.begin}, -1});
    segments.push_back({span, token.id});
    done = span.end;
  }
  if (done < text.size()) segments.push_back({{done, text.size()}, -1});
  return segments;
}

bool AddedTokens::may_hold_special(std::string_view text, Pass pass) const {
  const ByteTrie& keys = trie(pass);
  for (size_t at = 0; at < text.size() && !keys.empty(); ++at) {
    const ByteTrie::Match match = keys.longest(text, at);
    if (match.bytes > 0 && tokens_[static_cast<size_t>(match.value)].special) return true;
  }
  return false;
}

bool AddedTokens::is_skipped(const AddedToken& token) const {
  const AddedToken* same_text = find(token.spelled);
  return same_text && same_text->special;
}

const AddedToken* AddedTokens::find(TokenId id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : &tokens_[found->second];
}

const AddedToken* AddedTokens::find(std::string_view content) const {
  const auto found = by_content_.find(std::string(content));
  return found == by_content_.end() ? nullptr : &tokens_[found->second];
}

void parse_added_tokens(const Json& list, const std::string& what, const Vocabulary& vocabulary,
                        AddedTokens& tokens) {
  if (!list.is_array()) {
    fail(ErrorKind::bad_model, "{}: added_tokens: expected an array, found {}", what,
         list.type_name());
  }
  for (size_t i = 0; i < list.size(); ++i) {
    const JsonFields fields(list[i], what, fmt::format("added_tokens[{}]", i));
    AddedToken token;
    token.id = static_cast<TokenId>(fields.integer("id", 0, kMaxTokenIds - 1));
    token.content = fields.string("content");
    token.single_word = fields.boolean_or("single_word", false);
    token.left_strip = fields.boolean_or("lstrip", false);
    token.right_strip = fields.boolean_or("rstrip", false);
    token.special = fields.boolean_or("special", false);
    token.normalized = fields.boolean_or("normalized", !token.special);
    tokens.add(std::move(token), vocabulary, what);
  }
}

}  // namespace klotski
