#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/file.h"

namespace klotski {

// The real path of the file `name` of a model folder. Model files name other files, so: the name
// must be plain, and a link must end inside the folder or, where the folder is a snapshot of the
// Hugging Face cache, among the blobs of the same repository. Throws where the file is missing.
//
// Links within these bounds stay usable: Hugging Face's cache makes every file of a snapshot a link
// to a blob, and people link files of one folder to each other. What is opened later must be opened
// with File::at_real_path(), so that a link exchanged after this check leads nowhere.
std::filesystem::path file_in_folder(const std::filesystem::path& folder, std::string_view name);

// The file that file_in_folder() finds, opened, or its text of at most max_bytes.
File open_in_folder(const std::filesystem::path& folder, std::string_view name);
std::string read_in_folder(const std::filesystem::path& folder, std::string_view name,
                           uint64_t max_bytes);

// The path of what is there, without links. Throws (bad_model) where nothing is.
std::filesystem::path real_path(const std::filesystem::path& path);

// Whether the folder has an entry of this name, be it only a dangling link.
bool has_entry(const std::filesystem::path& folder, std::string_view name);

}  // namespace klotski
