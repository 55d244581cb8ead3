#include "probe/cache_file.h"

#include <system_error>

#include "base/error.h"
#include "base/new_file.h"

namespace klotski {

std::string replace_cache_file(const std::filesystem::path& path, std::string_view text) {
  std::error_code ignored;  // a folder that is not there shows as a file that cannot be created
  std::filesystem::create_directories(path.parent_path(), ignored);
  try {
    NewFile file(path);
    file.write(text);
    file.commit();
    return {};
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace klotski
