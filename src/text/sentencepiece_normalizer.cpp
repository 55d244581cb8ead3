#include <utility>

#include "base/bytes.h"
#include "base/error.h"
#include "text/byte_trie.h"
#include "text/precompiled_charsmap.h"
#include "text/sentencepiece.h"
#include "text/utf8.h"

namespace klotski {

namespace {

// Replacements by the charsmap and the treatment of spaces, in one pass, as they depend on each
// other: a replacement may begin or end with a space.
class SentencePieceNormalizer : public Normalizer {
 public:
  SentencePieceNormalizer(const SentencePieceFile& file, const std::string& what)
      : name_(what + ": normalizer_spec"),
        charsmap_(file.charsmap, name_),
        space_(file.escape_whitespaces ? kSpaceMark : " "),
        trim_(file.remove_extra_whitespaces),
        prefix_(file.add_dummy_prefix && !file.space_as_suffix),
        suffix_(file.add_dummy_prefix && file.space_as_suffix) {
    for (size_t i = 0; i < file.pieces.size(); ++i) {
      if (file.pieces[i].type != SentencePieceFile::Type::user_defined) continue;
      verbatim_.insert(file.pieces[i].text, static_cast<int32_t>(i));
    }
  }

  void rewrite(std::string& text, size_t max_bytes) const override {
    std::string_view rest = text;
    while (trim_ && !rest.empty()) {
      const Step step = next(rest);
      if (step.text != " ") break;
      rest.remove_prefix(step.consumed);
    }
    std::string out;
    if (!rest.empty()) {
      out.reserve(text.size() + text.size() / 2);
      if (prefix_) out += space_;
      append(rest, max_bytes, out);
      if (out.size() > max_bytes) {
        fail(ErrorKind::bad_model, "{}: the charsmap makes the text longer than {}", name_,
             format_bytes(max_bytes));
      }
      while (trim_ && out.ends_with(space_)) out.resize(out.size() - space_.size());
      if (suffix_) out += space_;
    }
    text = std::move(out);
  }

 private:
  struct Step {
    std::string_view text;  // replaces the consumed bytes
    size_t consumed = 0;
  };

  Step next(std::string_view rest) const {
    const auto verbatim = verbatim_.longest(rest, 0);
    if (verbatim.bytes > 0) return {rest.substr(0, verbatim.bytes), verbatim.bytes};
    const auto match = charsmap_.longest(rest);
    if (match.bytes > 0) return {match.replacement, match.bytes};
    const size_t bytes = utf8_bytes(rest[0]);
    return {rest.substr(0, bytes), bytes};
  }

  void append(std::string_view rest, size_t max_bytes, std::string& out) const {
    bool after_space = trim_;
    while (!rest.empty() && out.size() <= max_bytes) {
      const Step step = next(rest);
      rest.remove_prefix(step.consumed);
      std::string_view part = step.text;
      while (after_space && part.starts_with(' ')) part.remove_prefix(1);
      if (part.empty()) continue;
      for (const char byte : part) {
        if (byte == ' ') {
          out += space_;
        } else {
          out += byte;
        }
      }
      after_space = trim_ && part.ends_with(' ');
    }
  }

  std::string name_;
  PrecompiledCharsmap charsmap_;
  ByteTrie verbatim_;  // user-defined symbols, which are left as they are
  std::string_view space_;
  bool trim_;
  bool prefix_;
  bool suffix_;
};

}  // namespace

std::unique_ptr<Normalizer> make_sentencepiece_normalizer(const SentencePieceFile& file,
                                                          const std::string& what) {
  return std::make_unique<SentencePieceNormalizer>(file, what);
}

}  // namespace klotski
