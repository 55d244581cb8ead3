#include "base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/bytes.h"
#include "base/error.h"

namespace klotski {

namespace {

ReadCalls default_calls;
ReadCalls* current_calls = &default_calls;

constexpr int kMaxInterruptedReads = 1000;  // EINTR and EAGAIN in a row before a read is given up

}  // namespace

ssize_t ReadCalls::pread(int descriptor, void* buffer, size_t size, off_t offset) {
  return ::pread(descriptor, buffer, size, offset);
}

ReadCalls& read_calls() { return *current_calls; }

ScopedReadCalls::ScopedReadCalls(ReadCalls& calls)
    : previous_(std::exchange(current_calls, &calls)) {}

ScopedReadCalls::~ScopedReadCalls() { current_calls = previous_; }

File::File(const std::filesystem::path& path) : path_(path) {
  // O_NONBLOCK: opening a FIFO must not wait for a writer.
  descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor_ < 0) {
    fail(ErrorKind::bad_model, "{}: cannot be opened: {}", path_in_quotes(path),
         std::strerror(errno));
  }
  struct stat status {};
  const bool known = ::fstat(descriptor_, &status) == 0;
  if (!known || !S_ISREG(status.st_mode)) {
    ::close(std::exchange(descriptor_, -1));
    fail(ErrorKind::bad_model, "{}: expected a regular file, found {}", path_in_quotes(path),
         S_ISDIR(status.st_mode) ? "a folder" : "something else");
  }
  size_ = static_cast<uint64_t>(status.st_size);
}

File::~File() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

File::File(File&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      size_(other.size_) {}

File& File::operator=(File&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(size_, other.size_);
  return *this;
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
  const File file(path);
  if (file.size() > max_bytes) {
    fail(ErrorKind::bad_model, "{}: expected at most {}, found {}", path_in_quotes(path),
         format_bytes(max_bytes), format_bytes(file.size()));
  }
  std::string text(file.size(), '\0');
  file.read_at(0, std::as_writable_bytes(std::span(text)));
  return text;
}

}  // namespace klotski
