#pragma once

#include <filesystem>
#include <string_view>

namespace klotski {

// Writes a file of the cache folder under another name first: whoever reads it finds all of it or
// nothing. What cannot be written is left as it was, without a word.
void replace_cache_file(const std::filesystem::path& path, std::string_view text);

}  // namespace klotski
