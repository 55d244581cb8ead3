#include "memory/direct_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <utility>

#include "memory/alignment.h"

namespace klotski {

namespace {

// Opened through the descriptor, not the path: the descriptor is of the file that was opened,
// whatever the path names by now.
int open_direct(const File& file) {
  const std::string link = fmt::format("/proc/self/fd/{}", file.descriptor());
  const int descriptor = ::open(link.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT);
  if (descriptor < 0) return -1;
  // Some file systems accept the flag and refuse the first read.
  alignas(kDirectAlignment) std::array<std::byte, kDirectAlignment> block;
  if (read_calls().pread(descriptor, block.data(), block.size(), 0) < 0 && errno == EINVAL) {
    ::close(descriptor);
    return -1;
  }
  return descriptor;
}

}  // namespace

DirectFile::DirectFile(std::shared_ptr<const File> file)
    : file_(std::move(file)), direct_descriptor_(open_direct(*file_)) {}

DirectFile::~DirectFile() {
  if (direct()) ::close(direct_descriptor_);
}

DirectFile::DirectFile(DirectFile&& other) noexcept
    : file_(std::move(other.file_)),
      direct_descriptor_(std::exchange(other.direct_descriptor_, -1)) {}

DirectFile& DirectFile::operator=(DirectFile&& other) noexcept {
  std::swap(file_, other.file_);
  std::swap(direct_descriptor_, other.direct_descriptor_);
  return *this;
}

uint64_t DirectFile::size_now() const {
  struct stat status {};
  if (::fstat(file_->descriptor(), &status) != 0) return size();
  return static_cast<uint64_t>(status.st_size);
}

}  // namespace klotski
