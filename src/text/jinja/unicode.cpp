#include "text/jinja/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>

#include "text/utf8.h"

namespace klotski::jinja {
namespace {

utf8proc_category_t category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

bool is_letter_category(utf8proc_category_t c) {
  return c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO;
}

// Characters whose upper case is more than one character. utf8proc maps one to one only.
struct LongMapping {
  char32_t from;
  std::u32string_view upper;
  std::u32string_view title;
};

constexpr std::array<LongMapping, 22> kLongMappings = {{
    {0x00DF, U"SS", U"Ss"},
    {0x0149, U"\u02BCN", U"\u02BCN"},
    {0x01F0, U"J\u030C", U"J\u030C"},
    {0x0390, U"\u0399\u0308\u0301", U"\u0399\u0308\u0301"},
    {0x03B0, U"\u03A5\u0308\u0301", U"\u03A5\u0308\u0301"},
    {0x0587, U"\u0535\u0552", U"\u0535\u0582"},
    {0x1E96, U"H\u0331", U"H\u0331"},
    {0x1E97, U"T\u0308", U"T\u0308"},
    {0x1E98, U"W\u030A", U"W\u030A"},
    {0x1E99, U"Y\u030A", U"Y\u030A"},
    {0x1E9A, U"A\u02BE", U"A\u02BE"},
    {0xFB00, U"FF", U"Ff"},
    {0xFB01, U"FI", U"Fi"},
    {0xFB02, U"FL", U"Fl"},
    {0xFB03, U"FFI", U"Ffi"},
    {0xFB04, U"FFL", U"Ffl"},
    {0xFB05, U"ST", U"St"},
    {0xFB06, U"ST", U"St"},
    {0xFB13, U"\u0544\u0546", U"\u0544\u0576"},
    {0xFB14, U"\u0544\u0535", U"\u0544\u0565"},
    {0xFB15, U"\u0544\u053B", U"\u0544\u056B"},
    {0xFB17, U"\u0544\u053D", U"\u0544\u056D"},
}};

const LongMapping* long_mapping(char32_t c) {
  if (c < 0xDF) return nullptr;
  const auto* found = std::lower_bound(kLongMappings.begin(), kLongMappings.end(), c,
                                       [](const LongMapping& m, char32_t x) { return m.from < x; });
  return found != kLongMappings.end() && found->from == c ? found : nullptr;
}

void append_all(std::string* out, std::u32string_view text) {
  for (const char32_t c : text) append_code_point(out, c);
}

void append_upper(std::string* out, char32_t c) {
  if (const LongMapping* mapping = long_mapping(c)) return append_all(out, mapping->upper);
  append_code_point(out, static_cast<char32_t>(utf8proc_toupper(static_cast<int32_t>(c))));
}

void append_title(std::string* out, char32_t c) {
  if (const LongMapping* mapping = long_mapping(c)) return append_all(out, mapping->title);
  append_code_point(out, static_cast<char32_t>(utf8proc_totitle(static_cast<int32_t>(c))));
}

bool is_cased(char32_t c) { return is_upper(c) || is_lower(c) || is_title(c); }

// Marks and some punctuation are looked through when the end of a word is sought.
bool is_case_ignorable(char32_t c) {
  const utf8proc_category_t kind = category(c);
  return kind == UTF8PROC_CATEGORY_MN || kind == UTF8PROC_CATEGORY_ME ||
         kind == UTF8PROC_CATEGORY_CF || kind == UTF8PROC_CATEGORY_LM ||
         kind == UTF8PROC_CATEGORY_SK || c == U'\'' || c == U'.' || c == U':' || c == 0xB7 ||
         c == 0x2018 || c == 0x2019;
}

// A capital sigma at the end of a word has a small form of its own.
bool is_final_sigma(std::string_view text, size_t begin, size_t end) {
  bool cased_before = false;
  for (size_t at = 0; at < begin;) {
    const char32_t c = next_code_point(text, &at);
    if (!is_case_ignorable(c)) cased_before = is_cased(c);
  }
  if (!cased_before) return false;
  for (size_t at = end; at < text.size();) {
    const char32_t c = next_code_point(text, &at);
    if (!is_case_ignorable(c)) return !is_cased(c);
  }
  return true;
}

// Appends the lower case of the character in [begin, end) of `text`.
void append_lower(std::string* out, std::string_view text, size_t begin, size_t end, char32_t c) {
  if (c == 0x0130) return append_all(out, U"i\u0307");
  // The look around a sigma is kept local, so that a long text of them stays linear.
  constexpr size_t kReach = 64;
  if (c == 0x03A3) {
    const size_t from = begin > kReach ? begin - kReach : 0;
    const std::string_view near = text.substr(from, end - from + kReach);
    append_code_point(out, is_final_sigma(near, begin - from, end - from) ? 0x03C2 : 0x03C3);
    return;
  }
  append_code_point(out, static_cast<char32_t>(utf8proc_tolower(static_cast<int32_t>(c))));
}

}  // namespace

char32_t next_code_point(std::string_view text, size_t* position) {
  const auto byte = static_cast<unsigned char>(text[*position]);
  if (byte < 0x80) {
    ++*position;
    return byte;
  }
  const Utf8Char next = decode_utf8(text, *position);
  *position += next.bytes;
  return next.code;
}

void append_code_point(std::string* out, char32_t code_point) {
  const bool surrogate = code_point >= 0xD800 && code_point <= 0xDFFF;
  append_utf8(*out, surrogate ? kReplacementCharacter : code_point);
}

int64_t count_code_points(std::string_view text) {
  return static_cast<int64_t>(count_utf8_chars(text));
}

size_t byte_offset(std::string_view text, int64_t index) {
  size_t position = 0;
  for (; index > 0 && position < text.size(); --index) next_code_point(text, &position);
  return position;
}

bool is_space(char32_t c) {
  return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool is_printable(char32_t c) {
  if (c == U' ') return true;
  const utf8proc_category_t kind = category(c);
  return kind != UTF8PROC_CATEGORY_CN &&
         (kind < UTF8PROC_CATEGORY_ZS || kind > UTF8PROC_CATEGORY_CO);
}

bool is_alpha(char32_t c) { return is_letter_category(category(c)); }
bool is_decimal(char32_t c) { return category(c) == UTF8PROC_CATEGORY_ND; }

bool is_digit(char32_t c) {
  return is_decimal(c) || c == 0xB2 || c == 0xB3 || c == 0xB9 || c == 0x2070 ||
         (c >= 0x2074 && c <= 0x2079) || (c >= 0x2080 && c <= 0x2089) ||
         (c >= 0x2460 && c <= 0x2468) || (c >= 0x2474 && c <= 0x247C) ||
         (c >= 0x2488 && c <= 0x2490);
}

bool is_numeric(char32_t c) {
  const utf8proc_category_t kind = category(c);
  return kind >= UTF8PROC_CATEGORY_ND && kind <= UTF8PROC_CATEGORY_NO;
}

bool is_upper(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_LU || (c >= 0x2160 && c <= 0x216F) ||
         (c >= 0x24B6 && c <= 0x24CF);
}

bool is_lower(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_LL || c == 0xAA || c == 0xBA ||
         (c >= 0x02B0 && c <= 0x02B8) || (c >= 0x2170 && c <= 0x217F) ||
         (c >= 0x24D0 && c <= 0x24E9);
}

bool is_title(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LT; }

bool is_identifier_start(char32_t c) {
  return c == U'_' || is_alpha(c) || category(c) == UTF8PROC_CATEGORY_NL;
}

bool is_identifier_part(char32_t c) {
  const utf8proc_category_t kind = category(c);
  return is_identifier_start(c) || kind == UTF8PROC_CATEGORY_ND || kind == UTF8PROC_CATEGORY_MN ||
         kind == UTF8PROC_CATEGORY_MC || kind == UTF8PROC_CATEGORY_PC;
}

std::string to_upper(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) append_upper(&out, next_code_point(text, &at));
  return out;
}

std::string to_lower(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const char32_t c = next_code_point(text, &at);
    append_lower(&out, text, begin, at, c);
  }
  return out;
}

std::string to_title(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  bool inside_word = false;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const char32_t c = next_code_point(text, &at);
    if (inside_word) {
      append_lower(&out, text, begin, at, c);
    } else {
      append_title(&out, c);
    }
    inside_word = is_cased(c);
  }
  return out;
}

std::string to_capitalized(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const char32_t c = next_code_point(text, &at);
    if (begin == 0) {
      append_title(&out, c);
    } else {
      append_lower(&out, text, begin, at, c);
    }
  }
  return out;
}

std::string_view strip_space(std::string_view text, bool left, bool right) {
  size_t begin = 0;
  while (left && begin < text.size()) {
    size_t at = begin;
    if (!is_space(next_code_point(text, &at))) break;
    begin = at;
  }
  size_t end = text.size();
  while (right && end > begin) {
    size_t start = end - 1;
    while (start > begin && (static_cast<unsigned char>(text[start]) & 0xC0) == 0x80) --start;
    size_t at = start;
    if (!is_space(next_code_point(text, &at))) break;
    end = start;
  }
  return text.substr(begin, end - begin);
}

}  // namespace klotski::jinja
