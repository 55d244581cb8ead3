#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace klotski {

// The text of a file of /sys or /proc, whose size is not known before, without the line end it ends
// with; empty where there is none or it is longer than 64 KiB.
std::string small_file(const std::filesystem::path& path);

// A list as the kernel writes it, "0-3,8": numbers that rise, below 65536. An empty text is an
// empty list; nothing where it is none.
std::optional<std::vector<int>> parse_id_list(std::string_view text);

// Writes ids as parse_id_list() reads them, for people.
std::string format_id_list(const std::vector<int>& ids);

}  // namespace klotski
