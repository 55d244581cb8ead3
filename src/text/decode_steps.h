#pragma once

#include <memory>
#include <string>

#include "text/decoder.h"
#include "text/pattern.h"

namespace klotski {

std::unique_ptr<DecodeStep> make_byte_level_step();
std::unique_ptr<DecodeStep> make_drop_byte_order_mark_step();  // only at the start of the text
// "<0xE2>" tokens become bytes; a run of them that is not valid UTF-8 becomes a U+FFFD per byte.
std::unique_ptr<DecodeStep> make_byte_fallback_step();
std::unique_ptr<DecodeStep> make_joining_step();
// Holds everything back and hands on one token at the end.
std::unique_ptr<DecodeStep> make_gather_step();
// The end-of-word suffix becomes a space, and nothing in the last token.
std::unique_ptr<DecodeStep> make_suffix_step(std::string suffix);
std::unique_ptr<DecodeStep> make_wordpiece_step(std::string prefix, bool cleanup);
// The mark becomes a space; with `drop_first`, nothing in the first token.
std::unique_ptr<DecodeStep> make_metaspace_step(std::string mark, bool drop_first);

struct StripOptions {
  std::string content;         // one character
  size_t start = 0, stop = 0;  // how many of it are cut off at either end
  bool across_tokens = false;  // all tokens are parts of one
};
std::unique_ptr<DecodeStep> make_strip_step(StripOptions options);

struct TokenStep {
  std::unique_ptr<DecodeStep> step;
  bool works_on_parts = false;  // the result does not change if a token comes in several parts
};
TokenStep make_replace_step(Pattern pattern, std::string content);

// The byte that a token "<0xE2>" names, or -1.
int byte_of_token(std::string_view token);

}  // namespace klotski
