#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace klotski {

// Says why nothing is kept where cache_folder() names no folder.
inline constexpr std::string_view kNoCacheFolder =
    "no cache folder: neither KLOTSKI_CACHE nor XDG_CACHE_HOME nor HOME is set";

// Writes a file of the cache folder under another name first, so that readers find all of it or
// nothing, also after a power failure. Returns why it could not be written; empty where it was.
[[nodiscard]] std::string replace_cache_file(const std::filesystem::path& path,
                                             std::string_view text);

}  // namespace klotski
