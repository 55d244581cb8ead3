#include "base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

#include "base/bytes.h"
#include "base/error.h"
#include "base/memory_limit.h"

namespace klotski {

namespace {

ReadCalls default_calls;
ReadCalls* current_calls = &default_calls;

FileIdentity identity_of(const struct stat& status) {
  const auto nanoseconds = [](const timespec& time) {
    return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
  };
  return {.device = static_cast<uint64_t>(status.st_dev),
          .inode = static_cast<uint64_t>(status.st_ino),
          .bytes = static_cast<uint64_t>(status.st_size),
          .links = static_cast<uint64_t>(status.st_nlink),
          .modified_ns = nanoseconds(status.st_mtim),
          .changed_ns = nanoseconds(status.st_ctim)};
}

// O_NONBLOCK: opening a FIFO must not wait for a writer.
constexpr int kReading = O_RDONLY | O_CLOEXEC | O_NONBLOCK;

// Opens a path from the root, a folder at a time, none of which may be a link: openat2() can do so
// in one call, but older kernels and some sandboxes refuse that. Returns -1 and sets errno.
int open_without_links(const std::filesystem::path& path) {
  constexpr int kFolder = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
  int descriptor = ::open("/", kFolder);
  const std::filesystem::path below = path.relative_path();
  for (auto name = below.begin(); name != below.end() && descriptor >= 0; ++name) {
    const bool last = std::next(name) == below.end();
    const int folder = descriptor;
    descriptor = ::openat(folder, name->c_str(), last ? kReading | O_NOFOLLOW : kFolder);
    const int error = errno;
    ::close(folder);
    errno = error;
  }
  return descriptor;
}

constexpr int kMaxInterruptedReads = 1000;  // EINTR and EAGAIN in a row before a read is given up

}  // namespace

ssize_t ReadCalls::pread(int descriptor, void* buffer, size_t size, off_t offset) {
  return ::pread(descriptor, buffer, size, offset);
}

ReadCalls& read_calls() { return *current_calls; }

ScopedReadCalls::ScopedReadCalls(ReadCalls& calls)
    : previous_(std::exchange(current_calls, &calls)) {}

ScopedReadCalls::~ScopedReadCalls() { current_calls = previous_; }

File::File(const std::filesystem::path& path) : File(path, ::open(path.c_str(), kReading)) {}

File File::at_real_path(const std::filesystem::path& path) {
  return {path, open_without_links(path)};
}

File::File(std::filesystem::path path, int descriptor)
    : path_(std::move(path)), descriptor_(descriptor) {
  if (descriptor_ < 0) {
    fail(ErrorKind::bad_model, "{}: cannot be opened: {}", path_in_quotes(path_),
         std::strerror(errno));
  }
  struct stat status {};
  const bool known = ::fstat(descriptor_, &status) == 0;
  if (!known || !S_ISREG(status.st_mode)) {
    ::close(std::exchange(descriptor_, -1));
    fail(ErrorKind::bad_model, "{}: expected a regular file, found {}", path_in_quotes(path_),
         S_ISDIR(status.st_mode) ? "a folder" : "something else");
  }
  identity_ = identity_of(status);
}

File::~File() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

File::File(File&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      identity_(other.identity_) {}

File& File::operator=(File&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(identity_, other.identity_);
  return *this;
}

bool FileIdentity::same_content(const FileIdentity& other) const {
  return device == other.device && inode == other.inode && bytes == other.bytes &&
         modified_ns == other.modified_ns &&
         (changed_ns == other.changed_ns || links != other.links);
}

void File::require_unchanged() const {
  struct stat status {};
  if (::fstat(descriptor_, &status) == 0 && identity_of(status).same_content(identity_)) return;
  fail(
      ErrorKind::bad_model,
      "{}: changed on disk since it was opened; leave model files alone while they are in use, and "
      "begin again",
      path_in_quotes(path_));
}

void File::read_at(uint64_t offset, std::span<std::byte> out) const {
  int interrupted = 0;
  while (!out.empty()) {
    const ssize_t got =
        current_calls->pread(descriptor_, out.data(), out.size(), static_cast<off_t>(offset));
    if (got < 0 && (errno == EINTR || errno == EAGAIN) && ++interrupted < kMaxInterruptedReads) {
      continue;
    }
    if (got < 0) {
      fail(ErrorKind::bad_model, "{}: reading {} bytes at offset {} failed: {}",
           path_in_quotes(path_), out.size(), offset, std::strerror(errno));
    }
    if (got == 0) {
      fail(ErrorKind::bad_model, "{}: ends at offset {}, {} more bytes were expected",
           path_in_quotes(path_), offset, out.size());
    }
    interrupted = 0;
    offset += static_cast<uint64_t>(got);
    out = out.subspan(static_cast<size_t>(got));
  }
}

std::string read_text_file(const std::filesystem::path& path, uint64_t max_bytes) {
  return read_text_file(File(path), max_bytes);
}

std::string read_text_file(const File& file, uint64_t max_bytes) {
  if (file.size() > max_bytes) {
    fail(ErrorKind::bad_model, "{}: expected at most {}, found {}", path_in_quotes(file.path()),
         format_bytes(max_bytes), format_bytes(file.size()));
  }
  constexpr uint64_t kSmall = kMiB;  // read without asking how much memory there is
  if (file.size() > kSmall) {
    require_memory(file.size(), allowed_memory_left(), path_in_quotes(file.path()));
  }
  std::string text(file.size(), '\0');
  file.read_at(0, std::as_writable_bytes(std::span(text)));
  return text;
}

}  // namespace klotski
