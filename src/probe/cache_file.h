#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace klotski {

// Writes a file of the cache folder under another name first, so that readers find all of it or
// nothing, also after a power failure. Returns why it could not be written; empty where it was.
[[nodiscard]] std::string replace_cache_file(const std::filesystem::path& path,
                                             std::string_view text);

}  // namespace klotski
