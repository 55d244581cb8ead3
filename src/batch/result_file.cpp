#include "batch/result_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace klotski {

namespace {

[[noreturn]] void refuse(ErrorKind kind, const std::filesystem::path& path,
                         std::string_view problem) {
  fail(kind, "{}: {}: {}", path_in_quotes(path), problem, std::strerror(errno));
}

}  // namespace

ResultFile::ResultFile(const std::filesystem::path& path, bool overwrite, int input_descriptor)
    : path_(path) {
  const int flags = O_WRONLY | O_APPEND | O_CLOEXEC;
  descriptor_ = ::open(path.c_str(), flags | O_CREAT | O_EXCL, 0666);
  if (descriptor_ >= 0) return;
  if (errno == EEXIST) descriptor_ = ::open(path.c_str(), flags | O_NONBLOCK);
  if (descriptor_ < 0) refuse(ErrorKind::usage, path, "cannot be opened for writing");
  try {
    open(overwrite, input_descriptor);
  } catch (const Error&) {
    ::close(descriptor_);
    throw;
  }
}

// Examines the file that was there before and empties it.
void ResultFile::open(bool overwrite, int input_descriptor) {
  struct stat there {};
  struct stat input {};
  if (::fstat(descriptor_, &there) != 0 || ::fstat(input_descriptor, &input) != 0) {
    refuse(ErrorKind::internal, path_, "cannot be examined");
  }
  regular_ = S_ISREG(there.st_mode);
  if (there.st_dev == input.st_dev && there.st_ino == input.st_ino) {
    fail(ErrorKind::usage, "{}: is the input; give the results another name",
         path_in_quotes(path_));
  }
  if (regular_ && !overwrite) {
    fail(ErrorKind::usage, "{}: is there already; give another name or --overwrite",
         path_in_quotes(path_));
  }
  if (regular_ && ::ftruncate(descriptor_, 0) != 0) {
    refuse(ErrorKind::internal, path_, "cannot be emptied");
  }
  // O_NONBLOCK was only there so that opening a pipe without reader does not wait.
  if (::fcntl(descriptor_, F_SETFL, O_APPEND) != 0) {
    refuse(ErrorKind::internal, path_, "cannot be made ready");
  }
}

ResultFile::~ResultFile() { ::close(descriptor_); }

void ResultFile::append(std::string_view line) {
  const off_t begin = regular_ ? ::lseek(descriptor_, 0, SEEK_END) : 0;
  for (std::string_view rest = line; !rest.empty();) {
    const ssize_t written = ::write(descriptor_, rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      const int error = errno;
      if (regular_ && begin >= 0) {
        [[maybe_unused]] const int as_well_as_we_can = ::ftruncate(descriptor_, begin);
      }
      errno = error;
      refuse(ErrorKind::internal, path_, "writing a result failed; results before it are kept");
    }
    rest.remove_prefix(static_cast<size_t>(written));
  }
}

void ResultFile::flush() {
  if (regular_ && ::fsync(descriptor_) != 0) {
    refuse(ErrorKind::internal, path_, "the results may not be on the disk");
  }
}

}  // namespace klotski
