#include "text/detokenizer.h"

#include "text/tokenizer_parts.h"

namespace klotski {

StreamingDetokenizer::StreamingDetokenizer(Tokenizer tokenizer, bool skip_special)
    : tokenizer_(std::move(tokenizer)),
      skip_special_(skip_special),
      stream_(tokenizer_.parts_->decoder) {}

std::string StreamingDetokenizer::push(TokenId id) {
  const auto token = tokenizer_.text_of(id);
  if (!token || (skip_special_ && tokenizer_.is_special(id))) return "";
  return stream_.push(std::string(*token));
}

std::string StreamingDetokenizer::finish() { return stream_.finish(); }

}  // namespace klotski
