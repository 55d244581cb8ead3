#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "text/pretokenizer.h"

namespace klotski {

// The fate of the matches of a Split.
enum class SplitBehavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

SplitBehavior parse_behavior(const JsonFields& fields, std::string_view fallback);

// Calls visit(match) for the matches in a text, left to right.
using MatchFinder =
    std::function<void(std::string_view text, const std::function<void(Span)>& visit)>;

// Cuts every piece at its matches; `invert` swaps matches and the parts between them.
void split_pieces(Pieces& pieces, const MatchFinder& find, SplitBehavior behavior,
                  bool invert = false);

// Every character for which the predicate holds is a match.
MatchFinder characters_where(std::function<bool(char32_t)> predicate);

}  // namespace klotski
