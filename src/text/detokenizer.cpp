#include "text/detokenizer.h"

#include "text/tokenizer_parts.h"

namespace klotski {

StreamingDetokenizer::StreamingDetokenizer(Tokenizer tokenizer, bool skip_special)
    : tokenizer_(std::move(tokenizer)),
      skip_special_(skip_special),
      stream_(tokenizer_.parts_->decoder) {}

std::string StreamingDetokenizer::push(TokenId id) {
  const auto token = tokenizer_.parts_->decoded_text(id, skip_special_);
  return token ? stream_.push(std::string(*token)) : "";
}

std::string StreamingDetokenizer::finish() { return stream_.finish(); }

}  // namespace klotski
