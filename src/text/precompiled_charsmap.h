#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace klotski {

// SentencePiece's table of replacements: a double-array trie of source strings and a block of
// NUL-ended replacement strings. Comes from a file, so every step is checked.
class PrecompiledCharsmap {
 public:
  PrecompiledCharsmap() = default;
  // The blob as it stands in a .model file. Throws where it is malformed.
  PrecompiledCharsmap(std::string_view blob, std::string_view what);

  struct Match {
    size_t bytes = 0;  // bytes of the source; 0: no rule applies
    std::string_view replacement;
  };
  Match longest(std::string_view text) const;
  Match shortest(std::string_view text) const;

  // Normalises as Hugging Face's Precompiled does: cluster by cluster, short clusters as a whole by
  // the shortest rule that begins them, else character by character. Ends early where the text
  // becomes longer than max_bytes.
  void normalize_by_grapheme(std::string& text, size_t max_bytes) const;

 private:
  Match find(std::string_view text, bool stop_at_first) const;
  std::string_view replacement(uint32_t offset) const;

  std::vector<uint32_t> units_;
  std::string replacements_;
};

}  // namespace klotski
