#include "synth/temporary_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <system_error>

#include "base/error.h"

namespace klotski {

namespace fs = std::filesystem;

namespace {

constexpr const char* kPrefix = "klotski-model-";

// The folder's descriptor, locked; -1 where it is gone, another's or in use.
int take(const fs::path& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (descriptor < 0) return -1;
  struct stat found {};
  const bool taken = ::flock(descriptor, LOCK_EX | LOCK_NB) == 0 &&
                     ::fstat(descriptor, &found) == 0 && found.st_uid == ::geteuid() &&
                     found.st_nlink > 0;  // 0: removed before it was locked
  if (taken) return descriptor;
  ::close(descriptor);
  return -1;
}

void remove_left_behind(const fs::path& parent) {
  std::error_code error;
  fs::directory_iterator entry(parent, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    if (!entry->path().filename().native().starts_with(kPrefix)) continue;
    const int lock = take(entry->path());
    if (lock < 0) continue;
    std::error_code ignored;
    fs::remove_all(entry->path(), ignored);
    ::close(lock);
  }
}

}  // namespace

fs::path folder_for_temporary_files() {
  std::error_code error;
  fs::path folder = fs::temp_directory_path(error);
  if (error) {
    fail(ErrorKind::usage, "TMPDIR: expected a folder for temporary files: {}", error.message());
  }
  return folder;
}

TemporaryFolder::TemporaryFolder(const fs::path& parent) {
  remove_left_behind(parent);
  // Before it is locked, another process may take a new folder for one left behind.
  for (int tries = 0; lock_ < 0 && tries < 100; ++tries) {
    std::string name = (parent / kPrefix).native() + "XXXXXX";
    if (::mkdtemp(name.data()) == nullptr) {
      fail(ErrorKind::internal, "{}: no folder can be made in it: {}", path_in_quotes(parent),
           std::strerror(errno));
    }
    path_ = name;
    lock_ = take(path_);
  }
  if (lock_ < 0)
    fail(ErrorKind::internal, "{}: a folder in it cannot be locked", path_in_quotes(parent));
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
  ::close(lock_);
}

}  // namespace klotski
