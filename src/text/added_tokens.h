#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "base/json.h"
#include "text/byte_trie.h"
#include "text/hash.h"
#include "text/normalizer.h"
#include "text/regex.h"
#include "text/vocabulary.h"

namespace klotski {

// A token that is found in the text itself, before the model sees it.
struct AddedToken {
  TokenId id = 0;
  std::string content;
  bool single_word = false;  // only where no word character touches it
  bool left_strip = false;   // takes the white space before it along
  bool right_strip = false;
  bool normalized = false;  // looked for in the normalised text, not in the raw text
  bool special = false;
  // The text that is looked for and that the token decodes to: the content, normalised where
  // `normalized` says so.
  std::string spelled = {};
};

// A stretch of text: a token, or text still to be tokenised (id -1).
struct Segment {
  Span span;
  TokenId id = -1;
};

class AddedTokens {
 public:
  // Throws on an empty or overlong token, and on ids that clash with the vocabulary's.
  void add(AddedToken token, const Vocabulary& vocabulary, const std::string& what);
  // Call once, after the last add(). Throws where normalising makes a token too long.
  void build(const Normalizer* normalizer, const std::string& what);

  enum class Pass { raw, normalized };
  // Cuts text at the tokens of one pass: at each place the longest token, leftmost first. Special
  // tokens that touch one of the `literal` spans (ascending) count as text.
  std::vector<Segment> split(std::string_view text, Pass pass, std::span<const Span> literal) const;
  // Whether the text of a special token stands anywhere in `text`, also where split() would pass it
  // over as it has taken a token that overlaps it.
  bool may_hold_special(std::string_view text, Pass pass) const;
  bool has_tokens(Pass pass) const { return !trie(pass).empty(); }

  // Whether decoding without special tokens leaves the token out. Hugging Face compares the
  // spelling, so a special token that normalisation changes stays in.
  bool is_skipped(const AddedToken& token) const;

  const AddedToken* find(TokenId id) const;
  const AddedToken* find(std::string_view content) const;
  size_t end_id() const { return end_id_; }

 private:
  const ByteTrie& trie(Pass pass) const { return pass == Pass::raw ? raw_ : normalized_; }
  bool stands_alone(std::string_view text, Span match) const;

  std::vector<AddedToken> tokens_;
  std::unordered_map<TokenId, size_t> by_id_;
  std::unordered_map<std::string, size_t, KeyedHash> by_content_;
  ByteTrie raw_, normalized_;  // values are indices into tokens_
  std::optional<Regex> word_;
  size_t end_id_ = 0;
};

// Reads the "added_tokens" array of a tokenizer.json.
void parse_added_tokens(const Json& list, const std::string& what, const Vocabulary& vocabulary,
                        AddedTokens& tokens);

}  // namespace klotski
