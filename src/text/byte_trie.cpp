#include "text/byte_trie.h"

namespace klotski {

void ByteTrie::insert(std::string_view key, int32_t value) {
  if (key.empty()) return;
  first_bytes_[static_cast<unsigned char>(key[0])] = true;
  int32_t node = 0;
  for (const char byte : key) {
    int32_t& next = edges_[edge(node, byte)];
    if (next == 0) {  // the root is never a child, so 0 marks an edge made just now
      next = static_cast<int32_t>(values_.size());
      values_.push_back(-1);
    }
    node = next;
  }
  values_[static_cast<size_t>(node)] = value;
}

ByteTrie::Match ByteTrie::longest(std::string_view text, size_t at) const {
  Match match;
  if (!first_bytes_[static_cast<unsigned char>(text[at])]) return match;
  int32_t node = 0;
  for (size_t end = at; end < text.size();) {
    node = step(node, text[end]);
    if (node < 0) break;
    ++end;
    if (value(node) >= 0) match = {end - at, value(node)};
  }
  return match;
}

}  // namespace klotski
