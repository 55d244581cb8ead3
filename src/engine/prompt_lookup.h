#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"

namespace klotski {

// Drafts the next tokens of a text from the text itself (prompt lookup decoding): the last tokens
// are looked for earlier in the text, and what followed them there is the draft. Of several places
// the one that agrees with the most last tokens counts, of equal ones the latest. A draft that
// reaches the end of the text goes on with itself, so that a text which repeats itself is foretold
// at any length. At most `most` tokens; none where no two last tokens stood together before.
std::vector<TokenId> prompt_lookup(std::span<const TokenId> text, int64_t most);

}  // namespace klotski
