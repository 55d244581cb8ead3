#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "model/description.h"

namespace klotski {

// One prompt of a reference file, with the results of a trusted implementation.
struct ReferencePrompt {
  std::vector<TokenId> input;       // with an encoder: its input, then the decoder's start token
  int64_t encoded = 0;              // first tokens of it that are an encoder's input
  std::vector<float> last_logits;   // at the last prompt position; may be empty
  std::vector<TokenId> argmax_all;  // most likely token after every prompt position; may be empty
  std::vector<TokenId> greedy;      // the greedy continuation
  std::vector<double> margins;      // best minus second logit at each greedy step; may be empty
};

// The version of transformers that made a reference.json; empty where it does not say.
std::string reference_version(std::string_view json_text, std::string_view what);

// Reads `prompts[]` of a reference.json; other fields are left alone.
std::vector<ReferencePrompt> parse_reference(std::string_view json_text, std::string_view what,
                                             const ModelDescription& model);

}  // namespace klotski
