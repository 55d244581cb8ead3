#include "text/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "text/unicode_versions.h"
#include "text/utf8.h"

namespace klotski {

namespace {

utf8proc_category_t category(char32_t code) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(code));
}

utf8proc_option_t decompose_options(NormalForm form) {
  const bool compatible = form == NormalForm::nfkc || form == NormalForm::nfkd;
  return static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE |
                                        (compatible ? UTF8PROC_COMPAT : 0));
}

// The first code point that the form may change: characters before it are left alone, whatever
// their neighbours are, as long as no combining character follows.
char32_t untouched_below(NormalForm form) {
  switch (form) {
    case NormalForm::nfc:
      return 0x300;
    case NormalForm::nfd:
      return 0xC0;
    default:
      return 0xA0;
  }
}

// True where the form leaves the character alone unless a character for which this is false follows
// it: no decomposition, and it neither reorders nor joins with the character before it.
bool is_stable(NormalForm form, char32_t code) {
  if (code < untouched_below(form)) return true;
  constexpr char32_t kFirstHangulSyllable = 0xAC00, kLastHangulSyllable = 0xD7A3;
  if (code >= kFirstHangulSyllable && code <= kLastHangulSyllable) {
    return form == NormalForm::nfc || form == NormalForm::nfkc;
  }
  constexpr char32_t kFirstJamo = 0x1100, kLastJamo = 0x11FF;
  if (code >= kFirstJamo && code <= kLastJamo) return false;
  if (form != NormalForm::nfc && is_never_decomposed(code)) return true;
  const utf8proc_property_t* property = utf8proc_get_property(static_cast<utf8proc_int32_t>(code));
  // comb_index is 0xFFFF for characters that never compose, and has its top bit set for characters
  // that compose with the character before them.
  const bool joins_previous = property->comb_index != UINT16_MAX && property->comb_index >= 0x8000;
  return property->combining_class == 0 && property->decomp_seqindex == UINT16_MAX &&
         !joins_previous;
}

int combining_class(utf8proc_int32_t code) { return utf8proc_get_property(code)->combining_class; }

// The library sorts marks by insertion, which is quadratic on long runs; this is not.
void order_marks(std::vector<utf8proc_int32_t>& codes) {
  for (size_t begin = 0; begin < codes.size();) {
    if (combining_class(codes[begin]) == 0) {
      ++begin;
      continue;
    }
    size_t end = begin + 1;
    while (end < codes.size() && combining_class(codes[end]) != 0) ++end;
    std::stable_sort(codes.begin() + static_cast<std::ptrdiff_t>(begin),
                     codes.begin() + static_cast<std::ptrdiff_t>(end),
                     [](auto a, auto b) { return combining_class(a) < combining_class(b); });
    begin = end;
  }
}

void append_normalized(NormalForm form, std::string_view text, std::string& out) {
  std::vector<utf8proc_int32_t> codes;
  codes.reserve(text.size());
  const utf8proc_option_t options = decompose_options(form);
  for (size_t at = 0; at < text.size();) {
    const Utf8Char next = decode_utf8(text, at);
    constexpr utf8proc_ssize_t kLongestDecomposition = 32;
    utf8proc_int32_t buffer[kLongestDecomposition];
    if (form != NormalForm::nfc && is_never_decomposed(next.code)) {
      codes.push_back(static_cast<utf8proc_int32_t>(next.code));
      at += next.bytes;
      continue;
    }
    int last_break_class = 0;
    const auto count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(next.code), buffer,
                                               kLongestDecomposition, options, &last_break_class);
    if (count < 0 || count > kLongestDecomposition) {
      fail(ErrorKind::internal, "Unicode normalisation failed on U+{:04X}",
           static_cast<uint32_t>(next.code));
    }
    codes.insert(codes.end(), buffer, buffer + count);
    at += next.bytes;
  }
  order_marks(codes);
  auto length = static_cast<utf8proc_ssize_t>(codes.size());
  if (form == NormalForm::nfc || form == NormalForm::nfkc) {
    length = utf8proc_normalize_utf32(
        codes.data(), length, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  }
  for (utf8proc_ssize_t i = 0; i < length; ++i) {
    append_utf8(out, static_cast<char32_t>(codes[static_cast<size_t>(i)]));
  }
}

}  // namespace

bool is_white_space(char32_t code) {
  if (code < 0x80) return code == ' ' || (code >= '\t' && code <= '\r');
  return code == 0x85 || code == 0xA0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200A) ||
         code == 0x2028 || code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000;
}

bool is_numeric(char32_t code) {
  if (code < 0x80) return code >= '0' && code <= '9';
  if (const auto forced = forced_property(CharacterProperty::numeric, code)) return *forced;
  const auto kind = category(code);
  return kind >= UTF8PROC_CATEGORY_ND && kind <= UTF8PROC_CATEGORY_NO;
}

bool is_punctuation(char32_t code) {
  if (code < 0x80) {
    return (code >= '!' && code <= '/') || (code >= ':' && code <= '@') ||
           (code >= '[' && code <= '`') || (code >= '{' && code <= '~');
  }
  if (const auto forced = forced_property(CharacterProperty::punctuation, code)) return *forced;
  const auto kind = category(code);
  return kind >= UTF8PROC_CATEGORY_PC && kind <= UTF8PROC_CATEGORY_PO;
}

bool is_mark(char32_t code) {
  if (const auto forced = forced_property(CharacterProperty::mark, code)) return *forced;
  const auto kind = category(code);
  return kind >= UTF8PROC_CATEGORY_MN && kind <= UTF8PROC_CATEGORY_ME;
}

bool is_nonspacing_mark(char32_t code) {
  const auto forced = forced_property(CharacterProperty::nonspacing_mark, code);
  return forced ? *forced : category(code) == UTF8PROC_CATEGORY_MN;
}

bool is_other(char32_t code) {
  if (const auto forced = forced_property(CharacterProperty::other, code)) return *forced;
  const auto kind = category(code);
  return kind == UTF8PROC_CATEGORY_CC || kind == UTF8PROC_CATEGORY_CF ||
         kind == UTF8PROC_CATEGORY_CO;
}

bool is_cjk_ideograph(char32_t code) {
  return (code >= 0x4E00 && code <= 0x9FFF) || (code >= 0x3400 && code <= 0x4DBF) ||
         (code >= 0x20000 && code <= 0x2A6DF) || (code >= 0x2A700 && code <= 0x2B73F) ||
         (code >= 0x2B740 && code <= 0x2B81F) || (code >= 0x2B920 && code <= 0x2CEAF) ||
         (code >= 0xF900 && code <= 0xFAFF) || (code >= 0x2F800 && code <= 0x2FA1F);
}

void append_lowercase(std::string& out, char32_t code) {
  if (code == 0x130) {  // the only character whose lower case is two characters
    out.append("i\xCC\x87");
    return;
  }
  if (const auto forced = forced_lowercase(code)) return append_utf8(out, *forced);
  append_utf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code))));
}

void normalize_unicode(NormalForm form, std::string& text) {
  size_t at = ascii_prefix(text);
  if (at == text.size()) return;
  std::string out;
  size_t copied = 0;  // text[0, copied) is in `out`
  while (at < text.size()) {
    const Utf8Char next = decode_utf8(text, at);
    if (is_stable(form, next.code)) {
      at += next.bytes;
      continue;
    }
    // An unstable stretch is normalised together with the character before it, which it may join.
    size_t begin = at;
    if (begin > copied) {
      do --begin;
      while (is_utf8_continuation(text[begin]));
    }
    for (; at < text.size(); at += utf8_bytes(text[at])) {
      if (is_stable(form, decode_utf8(text, at).code)) break;
    }
    out.append(text, copied, begin - copied);
    append_normalized(form, std::string_view(text).substr(begin, at - begin), out);
    copied = at;
  }
  if (copied == 0) return;
  out.append(text, copied);
  text = std::move(out);
}

size_t grapheme_bytes(std::string_view text, size_t at) {
  Utf8Char current = decode_utf8(text, at);
  size_t end = at + current.bytes;
  utf8proc_int32_t state = 0;
  while (end < text.size()) {
    const Utf8Char next = decode_utf8(text, end);
    if (utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(current.code),
                                         static_cast<utf8proc_int32_t>(next.code), &state)) {
      break;
    }
    end += next.bytes;
    current = next;
  }
  return end - at;
}

}  // namespace klotski
