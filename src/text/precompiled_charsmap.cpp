#include "text/precompiled_charsmap.h"

#include <utility>

#include "base/error.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace klotski {

namespace {

// The bits of one unit of the double array.
bool has_leaf(uint32_t unit) { return ((unit >> 8) & 1) != 0; }
uint32_t leaf_value(uint32_t unit) { return unit & 0x7FFFFFFFu; }
uint32_t label(uint32_t unit) { return unit & 0x800000FFu; }
uint32_t child_offset(uint32_t unit) { return (unit >> 10) << ((unit & 0x200u) >> 6); }

uint32_t read_u32(std::string_view bytes, size_t at) {
  uint32_t value = 0;
  for (size_t i = 4; i-- > 0;) value = (value << 8) | static_cast<unsigned char>(bytes[at + i]);
  return value;
}

}  // namespace

PrecompiledCharsmap::PrecompiledCharsmap(std::string_view blob, std::string_view what) {
  if (blob.empty()) return;
  const uint32_t trie_bytes = blob.size() < 4 ? 0 : read_u32(blob, 0);
  if (trie_bytes == 0 || trie_bytes % 4 != 0 || trie_bytes > blob.size() - 4) {
    fail(ErrorKind::bad_model, "{}: the charsmap of {} bytes claims a trie of {} bytes", what,
         blob.size(), trie_bytes);
  }
  replacements_ = blob.substr(4 + size_t{trie_bytes});
  if (!is_valid_utf8(replacements_)) {
    fail(ErrorKind::bad_model, "{}: the charsmap's replacements are not valid UTF-8", what);
  }
  units_.reserve(trie_bytes / 4);
  for (size_t at = 4; at < 4 + size_t{trie_bytes}; at += 4) units_.push_back(read_u32(blob, at));
}

std::string_view PrecompiledCharsmap::replacement(uint32_t offset) const {
  if (offset >= replacements_.size()) return {};
  // An offset inside a character would break the text's encoding.
  if (is_utf8_continuation(replacements_[offset])) return {};
  const std::string_view rest = std::string_view(replacements_).substr(offset);
  return rest.substr(0, rest.find('\0'));
}

PrecompiledCharsmap::Match PrecompiledCharsmap::find(std::string_view text,
                                                     bool stop_at_first) const {
  Match match;
  if (units_.empty()) return match;
  size_t node = child_offset(units_[0]);
  for (size_t i = 0; i < text.size() && text[i] != '\0'; ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    node ^= byte;
    if (node >= units_.size() || label(units_[node]) != byte) break;
    const uint32_t unit = units_[node];
    node ^= child_offset(unit);
    if (node >= units_.size()) break;
    // A rule may only end where a character of the text ends.
    const bool whole = i + 1 == text.size() || !is_utf8_continuation(text[i + 1]);
    if (has_leaf(unit) && whole) {
      match = {i + 1, replacement(leaf_value(units_[node]))};
      if (stop_at_first) break;
    }
  }
  return match;
}

PrecompiledCharsmap::Match PrecompiledCharsmap::longest(std::string_view text) const {
  return find(text, false);
}

PrecompiledCharsmap::Match PrecompiledCharsmap::shortest(std::string_view text) const {
  return find(text, true);
}

void PrecompiledCharsmap::normalize_by_grapheme(std::string& text, size_t max_bytes) const {
  constexpr size_t kLongestCluster = 5;  // bytes; longer ones are never looked up as a whole
  std::string out;
  out.reserve(text.size());
  const std::string_view view = text;
  for (size_t at = 0; at < view.size() && out.size() <= max_bytes;) {
    const size_t cluster_end = at + grapheme_bytes(view, at);
    if (cluster_end - at <= kLongestCluster) {
      const Match match = shortest(view.substr(at, cluster_end - at));
      if (match.bytes > 0) {
        out += match.replacement;
        at = cluster_end;
        continue;
      }
    }
    while (at < cluster_end && out.size() <= max_bytes) {
      const std::string_view character = view.substr(at, utf8_bytes(view[at]));
      const Match match = shortest(character);
      out += match.bytes > 0 ? match.replacement : character;
      at += character.size();
    }
  }
  text = std::move(out);
}

}  // namespace klotski
