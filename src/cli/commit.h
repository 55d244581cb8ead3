#pragma once

#include <string_view>

namespace klotski {

// The commit that the program was built from, "with changes" where files differed from it;
// "unknown" where the sources had no history. cmake/Commit.cmake writes the definition before each
// build.
std::string_view commit_of_program();

}  // namespace klotski
