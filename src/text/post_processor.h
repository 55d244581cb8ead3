#pragma once

#include <string>
#include <vector>

#include "base/ids.h"
#include "base/json.h"

namespace klotski {

// The special tokens that are put around a single text when they are asked for.
struct PostProcessor {
  std::vector<TokenId> before;
  std::vector<TokenId> after;
};

// Reads the "post_processor" object of a tokenizer.json. Throws on an unknown type, naming it.
PostProcessor parse_post_processor(const JsonFields& fields, const std::string& what);

}  // namespace klotski
