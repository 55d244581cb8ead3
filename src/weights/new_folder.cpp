#include "weights/new_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "base/bytes.h"
#include "base/error.h"

namespace klotski {

namespace fs = std::filesystem;

namespace {

constexpr uint64_t kOtherBytes = 64 * kMiB;  // tokenizer, configuration and headers

fs::path full_name(const fs::path& name) {
  if (name.empty()) fail(ErrorKind::usage, "expected the name of a new folder, found nothing");
  fs::path full = fs::absolute(name).lexically_normal();
  return full.has_filename() ? full : full.parent_path();
}

void refuse_existing(const fs::path& name) {
  std::error_code error;
  const fs::file_status status = fs::symlink_status(name, error);
  if (!fs::exists(status)) return;
  if (fs::is_directory(status) && fs::is_empty(name, error) && !error) return;
  fail(ErrorKind::usage, "{}: expected a new or empty folder, found {}", path_in_quotes(name),
       fs::is_directory(status) ? "one with files in it" : "something else");
}

}  // namespace

NewFolder::NewFolder(const fs::path& name, Leftovers leftovers)
    : name_(full_name(name)), leftovers_(leftovers) {
  refuse_existing(name_);
  if (!fs::is_directory(name_.parent_path())) {
    fail(ErrorKind::usage, "{}: no such folder to write {} into",
         path_in_quotes(name_.parent_path()), path_in_quotes(name_.filename()));
  }
  files_ = name_.parent_path() / ("." + name_.filename().native() + ".klotski-partial");
  std::error_code error;
  fs::create_directory(files_, error);
  lock_ = error ? -1 : ::open(files_.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (lock_ < 0) {
    fail(ErrorKind::usage, "{}: cannot be made: {}", path_in_quotes(files_),
         error ? error.message() : std::strerror(errno));
  }
  if (::flock(lock_, LOCK_EX | LOCK_NB) != 0) {
    ::close(lock_);
    fail(ErrorKind::usage, "{}: another program is writing it", path_in_quotes(name_));
  }
  if (leftovers_ == Leftovers::removed) clear();
}

NewFolder::~NewFolder() {
  if (lock_ < 0) return;
  std::error_code ignored;
  if (leftovers_ == Leftovers::removed) fs::remove_all(files_, ignored);
  fs::remove(files_, ignored);  // a folder without files
  ::close(lock_);
}

void NewFolder::clear() {
  for (const fs::directory_entry& entry : fs::directory_iterator(files_)) {
    fs::remove_all(entry.path());
  }
}

void NewFolder::require_space(uint64_t weights) const {
  std::error_code error;
  const fs::space_info space = fs::space(files_, error);
  const uint64_t needed = weights + kOtherBytes;
  if (error || space.available >= needed) return;
  fail(ErrorKind::does_not_fit, "{}: needs {} of disk, {} is free: {} too little",
       path_in_quotes(name_), format_bytes(needed), format_bytes(space.available),
       format_bytes(needed - space.available));
}

void NewFolder::publish() {
  refuse_existing(name_);
  std::error_code error;
  fs::rename(files_, name_, error);  // replaces an empty folder
  if (error) {
    fail(ErrorKind::internal, "{}: cannot get its name: {}", path_in_quotes(name_),
         error.message());
  }
  ::close(std::exchange(lock_, -1));
}

}  // namespace klotski
