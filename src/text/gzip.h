#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace klotski {

// Unpacks a gzip stream of at most max_bytes; throws where it is damaged, cut short or larger.
std::string gunzip(std::string_view packed, uint64_t max_bytes, std::string_view what);

// The text of `path`, unpacked where its name ends in .gz.
std::string read_text_or_gzip(const std::filesystem::path& path, uint64_t max_bytes);

// The text of a file of a model folder (read_in_folder()), unpacked where its name ends in .gz.
std::string read_in_folder_or_gzip(const std::filesystem::path& folder, std::string_view name,
                                   uint64_t max_bytes);

// `name` or, where the folder has only that, `name`.gz; nullopt where it has neither.
std::optional<std::string> find_name(const std::filesystem::path& folder, std::string_view name);

}  // namespace klotski
