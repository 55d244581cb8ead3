#include "probe/cache_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <fstream>
#include <system_error>

namespace klotski {

namespace fs = std::filesystem;

void replace_cache_file(const fs::path& path, std::string_view text) {
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  const fs::path unfinished = path.native() + fmt::format(".{}", ::getpid());
  std::ofstream file(unfinished, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (file) fs::rename(unfinished, path, error);
  if (!file || error) fs::remove(unfinished, error);
}

}  // namespace klotski
