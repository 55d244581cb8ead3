#pragma once

#include <filesystem>
#include <string_view>

namespace klotski {

// The real path of the file `name` of a model folder. Model files name other files, so: the name
// must be plain, and a link must end inside the folder or, where the folder is a snapshot of the
// Hugging Face cache, among the blobs of the same repository. Throws where the file is missing.
std::filesystem::path file_in_folder(const std::filesystem::path& folder, std::string_view name);

// Whether the folder has an entry of this name, be it only a dangling link.
bool has_entry(const std::filesystem::path& folder, std::string_view name);

}  // namespace klotski
