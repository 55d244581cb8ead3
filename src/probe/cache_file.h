#pragma once

#include <filesystem>
#include <string_view>

namespace klotski {

// Writes a file of the cache folder under another name first, so that readers find all of it or
// nothing. A file that cannot be written is left as it was, without a word.
void replace_cache_file(const std::filesystem::path& path, std::string_view text);

}  // namespace klotski
