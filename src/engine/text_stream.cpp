#include "engine/text_stream.h"

#include <algorithm>

namespace klotski {

namespace {

constexpr size_t kContextTokens = 8;  // more than any decoder looks back

}  // namespace

TextStream::TextStream(const Tokenizer& tokenizer, std::vector<std::string> stop_strings,
                       std::span<const TokenId> before)
    : detokenizer_(tokenizer), stop_strings_(std::move(stop_strings)) {
  for (const TokenId token : before.last(std::min(before.size(), kContextTokens))) {
    detokenizer_.push(token);
  }
}

std::string TextStream::push(TokenId token) {
  return stopped_ ? "" : release(detokenizer_.push(token), false);
}

std::string TextStream::finish() { return stopped_ ? "" : release(detokenizer_.finish(), true); }

std::string TextStream::release(std::string_view more, bool last) {
  held_ += more;
  size_t stop_at = std::string::npos;
  for (const std::string& stop : stop_strings_) stop_at = std::min(stop_at, held_.find(stop));
  if (stop_at != std::string::npos) {
    stopped_ = true;
    held_.resize(stop_at);
    return std::move(held_);
  }
  size_t kept = 0;  // bytes at the end that may begin a stop string
  for (const std::string& stop : stop_strings_) {
    for (size_t n = std::min(stop.size() - 1, held_.size()); n > kept && !last; --n) {
      if (held_.ends_with(std::string_view(stop).substr(0, n))) kept = n;
    }
  }
  std::string certain = held_.substr(0, held_.size() - kept);
  held_.erase(0, held_.size() - kept);
  return certain;
}

}  // namespace klotski
