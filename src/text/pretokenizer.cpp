#include "text/pretokenizer.h"

#include "text/byte_level.h"
#include "text/pattern.h"
#include "text/split.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace klotski {

namespace {

class SplitStep : public PreTokenizer {
 public:
  SplitStep(MatchFinder find, SplitBehavior behavior, bool invert = false)
      : find_(std::move(find)), behavior_(behavior), invert_(invert) {}
  void apply(Pieces& pieces) const override { split_pieces(pieces, find_, behavior_, invert_); }

 private:
  MatchFinder find_;
  SplitBehavior behavior_;
  bool invert_;
};

// Rewrites every piece on its own: `rewrite` appends a piece's new text.
template <typename Rewrite>
void rewrite_pieces(Pieces& pieces, Rewrite rewrite) {
  std::string out;
  out.reserve(pieces.text.size() + 16);
  for (Span& span : pieces.spans) {
    const size_t begin = out.size();
    rewrite(out, std::string_view(pieces.text).substr(span.begin, span.end - span.begin),
            span.begin == 0);
    span = {begin, out.size()};
  }
  pieces.text = std::move(out);
}

class SpellBytesStep : public PreTokenizer {
 public:
  void apply(Pieces& pieces) const override {
    rewrite_pieces(pieces, [](std::string& out, std::string_view piece, bool) {
      append_byte_level(out, piece);
    });
  }
};

class PrefixSpaceStep : public PreTokenizer {
 public:
  void apply(Pieces& pieces) const override {
    rewrite_pieces(pieces, [](std::string& out, std::string_view piece, bool) {
      if (!piece.starts_with(' ')) out += ' ';
      out += piece;
    });
  }
};

enum class PrependScheme { always, first, never };

class MetaspaceStep : public PreTokenizer {
 public:
  MetaspaceStep(std::string mark, PrependScheme scheme, bool split)
      : mark_(std::move(mark)), scheme_(scheme), split_(split) {}

  void apply(Pieces& pieces) const override {
    rewrite_pieces(pieces, [&](std::string& out, std::string_view piece, bool at_begin) {
      const bool wanted = scheme_ == PrependScheme::always ||
                          (scheme_ == PrependScheme::first && at_begin && pieces.at_input_start);
      if (wanted && !piece.starts_with(' ') && !piece.starts_with(mark_)) out += mark_;
      for (const char byte : piece) {
        if (byte == ' ') {
          out += mark_;
        } else {
          out += byte;
        }
      }
    });
    if (!split_) return;
    const auto find_mark = [this](std::string_view text, const std::function<void(Span)>& visit) {
      for (size_t at = text.find(mark_); at != std::string_view::npos;) {
        visit({at, at + mark_.size()});
        at = text.find(mark_, at + mark_.size());
      }
    };
    split_pieces(pieces, find_mark, SplitBehavior::merged_with_next);
  }

 private:
  std::string mark_;
  PrependScheme scheme_;
  bool split_;
};

PrependScheme parse_scheme(const JsonFields& fields) {
  const bool prefix = fields.boolean_or("add_prefix_space", true);
  const std::string name = fields.string_or("prepend_scheme", prefix ? "always" : "never");
  if (!prefix && name != "never") {
    fields.refuse("prepend_scheme", "\"never\", as add_prefix_space is false");
  }
  if (name == "always") return PrependScheme::always;
  if (name == "first") return PrependScheme::first;
  if (name == "never") return PrependScheme::never;
  fields.refuse("prepend_scheme", "always, first or never");
}

std::string parse_character(const JsonFields& fields, std::string_view key,
                            std::string_view fallback) {
  std::string text = fields.string_or(key, fallback);
  if (text.empty() || text.size() != utf8_bytes(text[0])) fields.refuse(key, "one character");
  return text;
}

MatchFinder matches_of(Pattern pattern) {
  auto shared = std::make_shared<Pattern>(std::move(pattern));
  return [shared](std::string_view text, const std::function<void(Span)>& visit) {
    shared->for_each_match(text, visit);
  };
}

class ChainBuilder {
 public:
  explicit ChainBuilder(std::string what) : what_(std::move(what)) {}

  void add(const JsonFields& fields) {
    const std::string type = fields.string("type");
    if (type == "Sequence") return add_sequence(fields);
    flush_spelling();
    if (type == "ByteLevel") return add_byte_level(fields);
    chain.steps.push_back(make_step(type, fields));
  }

  PreTokenizerChain chain;

 private:
  void add_sequence(const JsonFields& fields) {
    const Json* list = fields.find("pretokenizers");
    if (!list || !list->is_array()) fields.refuse("pretokenizers", "an array of pre-tokenizers");
    for (const Json& step : *list) add(JsonFields(step, what_, "pre_tokenizer.pretokenizers"));
  }

  // Only a spelling of bytes that comes last can be left to the caller.
  void flush_spelling() {
    if (chain.spell_bytes) chain.steps.push_back(std::make_unique<SpellBytesStep>());
    chain.spell_bytes = false;
  }

  void add_byte_level(const JsonFields& fields) {
    if (fields.boolean_or("add_prefix_space", true)) {
      chain.steps.push_back(std::make_unique<PrefixSpaceStep>());
    }
    if (fields.boolean_or("use_regex", true)) {
      chain.steps.push_back(make_regex_split(Regex(kGpt2Pattern, RegexDialect::oniguruma, what_)));
    }
    chain.spell_bytes = true;
  }

  std::unique_ptr<PreTokenizer> make_step(const std::string& type, const JsonFields& fields) {
    if (type == "Split") {
      return std::make_unique<SplitStep>(matches_of(parse_pattern(fields, what_)),
                                         parse_behavior(fields, ""),
                                         fields.boolean_or("invert", false));
    }
    if (type == "Metaspace") {
      return std::make_unique<MetaspaceStep>(parse_character(fields, "replacement", "\u2581"),
                                             parse_scheme(fields),
                                             fields.boolean_or("split", true));
    }
    if (type == "Whitespace") {
      Regex words(R"(\w+|[^\w\s]+)", RegexDialect::rust, what_);
      return std::make_unique<SplitStep>(matches_of(Pattern(std::move(words))),
                                         SplitBehavior::removed, true);
    }
    return make_character_step(type, fields);
  }

  std::unique_ptr<PreTokenizer> make_character_step(const std::string& type,
                                                    const JsonFields& fields) {
    if (type == "Digits") {
      const bool single = fields.boolean_or("individual_digits", false);
      return std::make_unique<SplitStep>(
          characters_where(is_numeric),
          single ? SplitBehavior::isolated : SplitBehavior::contiguous);
    }
    if (type == "Punctuation") {
      return std::make_unique<SplitStep>(characters_where(is_punctuation),
                                         parse_behavior(fields, "Isolated"));
    }
    if (type == "WhitespaceSplit") {
      return std::make_unique<SplitStep>(characters_where(is_white_space), SplitBehavior::removed);
    }
    if (type == "BertPreTokenizer") {
      chain.steps.push_back(
          std::make_unique<SplitStep>(characters_where(is_white_space), SplitBehavior::removed));
      return std::make_unique<SplitStep>(characters_where(is_punctuation), SplitBehavior::isolated);
    }
    if (type == "CharDelimiterSplit") {
      const char32_t delimiter = decode_utf8(parse_character(fields, "delimiter", ""), 0).code;
      return std::make_unique<SplitStep>(
          characters_where([delimiter](char32_t code) { return code == delimiter; }),
          SplitBehavior::removed);
    }
    fields.refuse("type", "a supported pre-tokenizer");
  }

  std::string what_;
};

}  // namespace

std::unique_ptr<PreTokenizer> make_regex_split(Regex regex) {
  return std::make_unique<SplitStep>(matches_of(Pattern(std::move(regex))),
                                     SplitBehavior::isolated);
}

PreTokenizerChain parse_pretokenizer(const JsonFields& fields, const std::string& what) {
  ChainBuilder builder(what);
  builder.add(fields);
  return std::move(builder.chain);
}

}  // namespace klotski
