#include "text/normalizer.h"

#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "text/base64.h"
#include "text/byte_level.h"
#include "text/pattern.h"
#include "text/precompiled_charsmap.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace klotski {

namespace {

constexpr size_t kMaxSteps = 256;

// Rewrites a text; may stop as soon as the text is longer than the number of bytes.
using Rewrite = std::function<void(std::string&, size_t)>;

// A normalizer made of one function.
class FunctionNormalizer : public Normalizer {
 public:
  FunctionNormalizer(Rewrite function, std::string name)
      : function_(std::move(function)), name_(std::move(name)) {}
  void rewrite(std::string& text, size_t max_bytes) const override {
    function_(text, max_bytes);
    if (text.size() > max_bytes) {
      fail(ErrorKind::bad_model, "{} makes the text longer than {}", name_,
           format_bytes(max_bytes));
    }
  }

 private:
  Rewrite function_;
  std::string name_;
};

class SequenceNormalizer : public Normalizer {
 public:
  explicit SequenceNormalizer(std::vector<std::unique_ptr<Normalizer>> steps)
      : steps_(std::move(steps)) {}
  void rewrite(std::string& text, size_t max_bytes) const override {
    for (const auto& step : steps_) step->rewrite(text, max_bytes);
  }

 private:
  std::vector<std::unique_ptr<Normalizer>> steps_;
};

// A step whose growth needs no check: a character becomes a bounded number of others.
Rewrite unbounded(std::function<void(std::string&)> function) {
  return [function = std::move(function)](std::string& text, size_t) { function(text); };
}

// Rewrites text character by character; `visit` appends the text that replaces a character.
template <typename Visit>
void map_characters(std::string& text, Visit visit) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const Utf8Char next = decode_utf8(text, at);
    visit(out, next.code);
    at += next.bytes;
  }
  text = std::move(out);
}

template <typename Predicate>
void remove_characters(std::string& text, Predicate removed) {
  map_characters(text, [&](std::string& out, char32_t code) {
    if (!removed(code)) append_utf8(out, code);
  });
}

void lowercase(std::string& text) { map_characters(text, append_lowercase); }

void strip(std::string& text, bool left, bool right) {
  size_t begin = 0, end = text.size();
  while (left && begin < end) {
    const Utf8Char next = decode_utf8(text, begin);
    if (!is_white_space(next.code)) break;
    begin += next.bytes;
  }
  while (right && end > begin) {
    size_t last = end - 1;
    while (is_utf8_continuation(text[last])) --last;
    if (!is_white_space(decode_utf8(text, last).code)) break;
    end = last;
  }
  text = text.substr(begin, end - begin);
}

// The clean-up of NMT: control characters go, the odd spaces become plain ones.
void nmt(std::string& text) {
  map_characters(text, [](std::string& out, char32_t code) {
    const bool removed = (code >= 0x1 && code <= 0x8) || code == 0xB ||
                         (code >= 0xE && code <= 0x1F) || code == 0x7F || code == 0x8F ||
                         code == 0x9F;
    if (removed) return;
    const bool space = code == 0x9 || code == 0xA || code == 0xC || code == 0xD || code == 0x1680 ||
                       (code >= 0x200B && code <= 0x200F) || code == 0x2028 || code == 0x2029 ||
                       code == 0x2581 || code == 0xFEFF || code == 0xFFFD;
    append_utf8(out, space ? U' ' : code);
  });
}

void bert_clean(std::string& text) {
  map_characters(text, [](std::string& out, char32_t code) {
    const bool line = code == '\t' || code == '\n' || code == '\r';
    if (code == 0 || code == kReplacementCharacter || (!line && is_other(code))) return;
    append_utf8(out, is_white_space(code) ? U' ' : code);
  });
}

void space_out_cjk(std::string& text) {
  map_characters(text, [](std::string& out, char32_t code) {
    const bool apart = is_cjk_ideograph(code);
    if (apart) out += ' ';
    append_utf8(out, code);
    if (apart) out += ' ';
  });
}

Rewrite parse_bert(const JsonFields& fields) {
  const bool clean = fields.boolean_or("clean_text", true);
  const bool cjk = fields.boolean_or("handle_chinese_chars", true);
  const bool lower = fields.boolean_or("lowercase", true);
  const bool strip_accents = fields.boolean_or("strip_accents", lower);
  return unbounded([=](std::string& text) {
    if (clean) bert_clean(text);
    if (cjk) space_out_cjk(text);
    if (strip_accents) {
      normalize_unicode(NormalForm::nfd, text);
      remove_characters(text, is_nonspacing_mark);
    }
    if (lower) lowercase(text);
  });
}

Rewrite parse_precompiled(const JsonFields& fields, const std::string& what) {
  const auto blob = decode_base64(fields.string("precompiled_charsmap"));
  if (!blob) fields.refuse("precompiled_charsmap", "base64");
  auto charsmap = std::make_shared<PrecompiledCharsmap>(*blob, what);
  return [charsmap](std::string& text, size_t max_bytes) {
    charsmap->normalize_by_grapheme(text, max_bytes);
  };
}

std::optional<NormalForm> normal_form(std::string_view type) {
  if (type == "NFC") return NormalForm::nfc;
  if (type == "NFD") return NormalForm::nfd;
  if (type == "NFKC") return NormalForm::nfkc;
  if (type == "NFKD") return NormalForm::nfkd;
  return std::nullopt;
}

Rewrite parse_replace(const JsonFields& fields, const std::string& what) {
  auto pattern = std::make_shared<Pattern>(parse_pattern(fields, what));
  return [pattern, content = fields.string("content")](std::string& text, size_t max_bytes) {
    text = pattern->replaced(text, content, max_bytes);
  };
}

Rewrite parse_step(const JsonFields& fields, const std::string& type, const std::string& what) {
  if (const auto form = normal_form(type)) {
    return unbounded([form](std::string& text) { normalize_unicode(*form, text); });
  }
  if (type == "Replace") return parse_replace(fields, what);
  if (type == "BertNormalizer") return parse_bert(fields);
  if (type == "Precompiled") return parse_precompiled(fields, what);
  if (type == "Lowercase") return unbounded(lowercase);
  if (type == "Nmt") return unbounded(nmt);
  if (type == "StripAccents") {
    return unbounded([](std::string& text) { remove_characters(text, is_mark); });
  }
  if (type == "ByteLevel") {
    return unbounded([](std::string& text) { text = to_byte_level(text); });
  }
  if (type == "Prepend") {
    return unbounded([prefix = fields.string("prepend")](std::string& text) {
      if (!text.empty()) text.insert(0, prefix);
    });
  }
  if (type == "Strip") {
    const bool left = fields.boolean_or("strip_left", true);
    const bool right = fields.boolean_or("strip_right", true);
    return unbounded([=](std::string& text) { strip(text, left, right); });
  }
  fields.refuse("type", "a supported normalizer");
}

// `steps` counts the steps of all sequences, however they are nested.
std::unique_ptr<Normalizer> parse_tree(const JsonFields& fields, const std::string& what,
                                       size_t& steps) {
  const std::string type = fields.string("type");
  if (++steps > kMaxSteps) {
    fail(ErrorKind::bad_model, "{}: normalizer: expected at most {} steps, found more", what,
         kMaxSteps);
  }
  if (type != "Sequence") {
    return std::make_unique<FunctionNormalizer>(parse_step(fields, type, what),
                                                fmt::format("{}: the normalizer {}", what, type));
  }
  const Json* list = fields.find("normalizers");
  if (!list || !list->is_array()) fields.refuse("normalizers", "an array of normalizers");
  std::vector<std::unique_ptr<Normalizer>> sequence;
  for (const Json& step : *list) {
    sequence.push_back(parse_tree(JsonFields(step, what, "normalizer.normalizers"), what, steps));
  }
  return std::make_unique<SequenceNormalizer>(std::move(sequence));
}

}  // namespace

std::unique_ptr<Normalizer> parse_normalizer(const JsonFields& fields, const std::string& what) {
  size_t steps = 0;
  return parse_tree(fields, what, steps);
}

}  // namespace klotski
