#include "text/word_models.h"

#include "text/utf8.h"

namespace klotski {

void WordPieceModel::tokenize(std::string_view piece, std::vector<TokenId>& out) const {
  const size_t before = out.size();
  const auto give_up = [&] {
    out.resize(before);
    out.push_back(options_.unknown);
  };
  if (count_utf8_chars(piece) > options_.max_characters) return give_up();
  std::string spelled;
  for (size_t begin = 0; begin < piece.size();) {
    std::optional<TokenId> found;
    size_t end = piece.size();
    for (; end > begin && !found; --end) {
      if (end < piece.size() && is_utf8_continuation(piece[end])) continue;
      spelled.assign(begin > 0 ? options_.continuing_prefix : "");
      spelled.append(piece.substr(begin, end - begin));
      found = vocabulary_.find(spelled);
      if (found) break;
    }
    if (!found) return give_up();
    out.push_back(*found);
    begin = end;
  }
}

}  // namespace klotski
