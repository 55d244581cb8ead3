#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"

namespace klotski {

// Turns the tokens of one sequence into text as they come and watches for stop strings. Text that
// may still turn out to be the beginning of a stop string is held back; a stop string itself and
// all text after it are never handed out.
class TextStream {
 public:
  // `before` are the tokens that the text continues, if it continues any: some decoders drop the
  // space at the very start of a text, which the middle of one must keep.
  TextStream(const Tokenizer& tokenizer, std::vector<std::string> stop_strings,
             std::span<const TokenId> before = {});

  // The text that is certain after this token.
  std::string push(TokenId token);
  // The text that is left when no more tokens come.
  std::string finish();
  bool stopped() const { return stopped_; }

 private:
  std::string release(std::string_view more, bool last);

  StreamingDetokenizer detokenizer_;
  std::vector<std::string> stop_strings_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace klotski
