#include "base/written_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/file.h"
#include "base/write_calls.h"

namespace klotski {

namespace {

[[noreturn]] void fail_on_path(const std::filesystem::path& path, std::string_view problem) {
  const int error = errno;
  const std::string message =
      fmt::format("{}: {}: {}", path_in_quotes(path), problem, std::strerror(error));
  if (error == ENOSPC || error == EDQUOT) throw DiskFull(message);
  throw Error(ErrorKind::internal, message);
}

struct stat status_of(int descriptor, const std::filesystem::path& path) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) fail_on_path(path, "cannot be examined");
  return status;
}

}  // namespace

WrittenFile::WrittenFile(const std::filesystem::path& path, int flags) : path_(path) {
  descriptor_ = write_calls().open(path.c_str(), flags | O_CLOEXEC, 0666);
  if (descriptor_ >= 0) return;
  if (errno == ENOSPC || errno == EDQUOT) fail_with("cannot be created");
  fail(ErrorKind::usage, "{}: cannot be opened for writing: {}", path_in_quotes(path),
       std::strerror(errno));
}

WrittenFile::WrittenFile(std::filesystem::path path, TakenDescriptor taken)
    : path_(std::move(path)), descriptor_(taken.descriptor) {}

WrittenFile::~WrittenFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

WrittenFile::WrittenFile(WrittenFile&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

WrittenFile& WrittenFile::operator=(WrittenFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

WrittenFile WrittenFile::temporary() {
  std::string name = (std::filesystem::temp_directory_path() / "klotski-XXXXXX").string();
  const int descriptor = ::mkostemp(name.data(), O_CLOEXEC);
  if (descriptor < 0) fail_on_path(name, "cannot be created");
  ::unlink(name.c_str());
  return {name, TakenDescriptor{descriptor}};
}

uint64_t WrittenFile::size() const {
  return static_cast<uint64_t>(status_of(descriptor_, path_).st_size);
}

bool WrittenFile::regular() const { return S_ISREG(status_of(descriptor_, path_).st_mode); }

bool WrittenFile::lock() {
  while (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) return false;
    if (errno != EINTR) fail_with("cannot be locked");
  }
  return true;
}

bool WrittenFile::named() const {
  struct stat named {};
  const struct stat mine = status_of(descriptor_, path_);
  return ::stat(path_.c_str(), &named) == 0 && named.st_dev == mine.st_dev &&
         named.st_ino == mine.st_ino;
}

void WrittenFile::read_at(uint64_t offset, std::span<char> out) const {
  while (!out.empty()) {
    const ssize_t got =
        read_calls().pread(descriptor_, out.data(), out.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_with("cannot be read");
    if (got == 0) {
      fail(ErrorKind::internal, "{}: ends at byte {}, {} more were expected", path_in_quotes(path_),
           offset, out.size());
    }
    offset += static_cast<uint64_t>(got);
    out = out.subspan(static_cast<size_t>(got));
  }
}

void WrittenFile::write_at(uint64_t offset, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written =
        write_calls().pwrite(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail_with("cannot be written");
    offset += static_cast<uint64_t>(written);
    bytes.remove_prefix(static_cast<size_t>(written));
  }
}

size_t WrittenFile::write_some(std::string_view bytes) {
  for (;;) {
    const ssize_t written = write_calls().write(descriptor_, bytes.data(), bytes.size());
    if (written >= 0) return static_cast<size_t>(written);
    if (errno != EINTR) fail_with("cannot be written");
  }
}

void WrittenFile::truncate(uint64_t size) {
  if (write_calls().ftruncate(descriptor_, static_cast<off_t>(size)) != 0) {
    fail_with("cannot be shortened");
  }
}

void WrittenFile::sync() {
  if (write_calls().fsync(descriptor_) != 0) fail_with("cannot be flushed to the disk");
}

void WrittenFile::fail_with(std::string_view problem) const { fail_on_path(path_, problem); }

void sync_folder_of(const std::filesystem::path& file) {
  const std::filesystem::path parent = file.parent_path();
  const std::filesystem::path folder = parent.empty() ? "." : parent;
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;  // a folder that may be written to and not read
  const WrittenFile opened(folder, TakenDescriptor{descriptor});
  // Some file systems know no fsync of a folder.
  if (write_calls().fsync(descriptor) != 0 && errno != EINVAL && errno != ENOTSUP) {
    fail_on_path(folder, "cannot be flushed to the disk");
  }
}

void rename_file(const std::filesystem::path& from, const std::filesystem::path& to) {
  if (write_calls().rename(from.c_str(), to.c_str()) != 0) {
    fail_on_path(from, fmt::format("cannot be renamed to {}", path_in_quotes(to)));
  }
}

void remove_file(const std::filesystem::path& path) {
  if (write_calls().unlink(path.c_str()) != 0 && errno != ENOENT) {
    fail_on_path(path, "cannot be removed");
  }
}

}  // namespace klotski
