#include "base/folder.h"

#include <algorithm>

#include "base/error.h"

namespace klotski {

namespace fs = std::filesystem;

namespace {

bool is_inside(const fs::path& path, const fs::path& folder) {
  const auto mismatch = std::mismatch(folder.begin(), folder.end(), path.begin(), path.end());
  return mismatch.first == folder.end();
}

// Whether a link in `folder` may end at `target`. Both paths are real ones, without links.
bool may_link_to(const fs::path& folder, const fs::path& target) {
  if (is_inside(target, folder)) return true;
  const fs::path snapshots = folder.parent_path();
  return snapshots.filename() == "snapshots" &&
         is_inside(target, snapshots.parent_path() / "blobs");
}

}  // namespace

fs::path real_path(const fs::path& path) {
  std::error_code error;
  fs::path real = fs::canonical(path, error);
  if (error)
    fail(ErrorKind::bad_model, "{}: cannot be found: {}", path_in_quotes(path), error.message());
  return real;
}

fs::path file_in_folder(const fs::path& folder, std::string_view name) {
  if (name.empty() || name == "." || name == ".." || name.find('/') != std::string_view::npos ||
      name.find('\0') != std::string_view::npos) {
    fail(ErrorKind::bad_model, "{}: expected the plain name of a file in this folder, found {}",
         path_in_quotes(folder), in_quotes(name));
  }
  const fs::path real_folder = real_path(folder);
  fs::path target = real_path(folder / name);
  if (!may_link_to(real_folder, target)) {
    fail(ErrorKind::bad_model, "{}: expected a file of the model folder, found a link to {}",
         path_in_quotes(folder / name), path_in_quotes(target));
  }
  return target;
}

File open_in_folder(const fs::path& folder, std::string_view name) {
  return File::at_real_path(file_in_folder(folder, name));
}

std::string read_in_folder(const fs::path& folder, std::string_view name, uint64_t max_bytes) {
  return read_text_file(open_in_folder(folder, name), max_bytes);
}

bool has_entry(const fs::path& folder, std::string_view name) {
  std::error_code error;
  return fs::symlink_status(folder / name, error).type() != fs::file_type::not_found;
}

}  // namespace klotski
