#pragma once

#include <string>
#include <string_view>

namespace klotski {

// Character properties under the names that tokenizer.json components rely on.
bool is_white_space(char32_t code);  // Unicode White_Space
bool is_numeric(char32_t code);      // categories Nd, Nl, No
bool is_punctuation(char32_t code);  // ASCII punctuation and the categories P*
bool is_mark(char32_t code);         // categories M*
bool is_nonspacing_mark(char32_t code);
bool is_other(char32_t code);  // categories Cc, Cf, Co: control, format, private use
bool is_cjk_ideograph(char32_t code);

// The full lower-case mapping of one character, without context.
void append_lowercase(std::string& out, char32_t code);

enum class NormalForm { nfc, nfd, nfkc, nfkd };

// Takes and gives valid UTF-8. Linear up to the sort of each run of combining marks.
void normalize_unicode(NormalForm form, std::string& text);

// Length in bytes of the extended grapheme cluster at text[at].
size_t grapheme_bytes(std::string_view text, size_t at);

}  // namespace klotski
