#pragma once

#include <string>

#include "text/decoder.h"
#include "text/tokenizer.h"

namespace klotski {

// Decodes tokens one at a time. Text that push() returns is final: it never holds half a character,
// and all text that push() and finish() return is that of Tokenizer::decode for all the ids.
class StreamingDetokenizer {
 public:
  explicit StreamingDetokenizer(Tokenizer tokenizer, bool skip_special = false);

  std::string push(TokenId id);
  std::string finish();  // call once, at the end

 private:
  Tokenizer tokenizer_;
  bool skip_special_;
  DecodeStream stream_;
};

}  // namespace klotski
