#include "memory/spill_file.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/bytes.h"
#include "base/error.h"
#include "memory/alignment.h"

namespace klotski {

namespace {

constexpr int kMaxFruitlessWrites = 1000;  // interruptions and too short answers in a row

int open_unnamed(const std::filesystem::path& folder) {
  const int descriptor = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (descriptor >= 0) return descriptor;
  // Not every file system has unnamed files: take one with a name, and the name away.
  std::string path = (folder / "klotski-spill-XXXXXX").native();
  const int named = ::mkostemp(path.data(), O_CLOEXEC);
  if (named >= 0) ::unlink(path.c_str());
  return named;
}

uint64_t free_bytes(const std::filesystem::path& folder) {
  struct statvfs status {};
  if (::statvfs(folder.c_str(), &status) != 0) return 0;
  return static_cast<uint64_t>(status.f_bavail) * static_cast<uint64_t>(status.f_frsize);
}

bool set_direct(int descriptor) {
  const int flags = ::fcntl(descriptor, F_GETFL);
  return flags >= 0 && ::fcntl(descriptor, F_SETFL, flags | O_DIRECT) == 0;
}

}  // namespace

int SpillCalls::posix_fallocate(int descriptor, off_t offset, off_t size) {
  return ::posix_fallocate(descriptor, offset, size);
}

ssize_t SpillCalls::pwrite(int descriptor, const void* buffer, size_t size, off_t offset) {
  return ::pwrite(descriptor, buffer, size, offset);
}

ssize_t SpillCalls::pread(int descriptor, void* buffer, size_t size, off_t offset) {
  return ::pread(descriptor, buffer, size, offset);
}

SpillCalls& SpillCalls::system() {
  static SpillCalls calls;
  return calls;
}

SpillFile::SpillFile(const std::filesystem::path& folder, uint64_t bytes, SpillCalls& calls)
    : folder_(folder), size_(bytes), calls_(calls) {
  if (bytes > static_cast<uint64_t>(INT64_MAX)) fail_with(ENOSPC, "reserving", 0, bytes);
  descriptor_ = open_unnamed(folder_);
  if (descriptor_ < 0) {
    fail(ErrorKind::usage, "{}: no temporary file can be made in this folder: {}",
         path_in_quotes(folder_), std::strerror(errno));
  }
  try {
    reserve_space();
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
  direct_ = set_direct(descriptor_);  // after the reservation, which may write single bytes
}

SpillFile::~SpillFile() { ::close(descriptor_); }

void SpillFile::reserve_space() {
  if (size_ == 0) return;
  int error = EINTR;
  for (int tries = 0; error == EINTR && tries < kMaxFruitlessWrites; ++tries) {
    error = calls_.posix_fallocate(descriptor_, 0, static_cast<off_t>(size_));
  }
  if (error != 0) fail_with(error, "reserving", 0, size_);
}

void SpillFile::write(std::span<const SpillWrite> pieces) {
  for (const SpillWrite& one : pieces) write(one.offset, one.from);
}

void SpillFile::read(std::span<const SpillRead> pieces) const {
  for (const SpillRead& one : pieces) read(one.offset, one.to);
}

void SpillFile::write(uint64_t offset, std::span<const std::byte> data) {
  transfer("writing", offset, data, [&](size_t done) {
    return calls_.pwrite(descriptor_, data.data() + done, data.size() - done,
                         static_cast<off_t>(offset + done));
  });
}

void SpillFile::read(uint64_t offset, std::span<std::byte> out) const {
  transfer("reading", offset, out, [&](size_t done) {
    return calls_.pread(descriptor_, out.data() + done, out.size() - done,
                        static_cast<off_t>(offset + done));
  });
}

// Repeats `call`, which moves bytes from the first `done` on, until all are moved.
template <typename Call>
void SpillFile::transfer(const char* what, uint64_t offset, std::span<const std::byte> memory,
                         Call call) const {
  const size_t bytes = memory.size();
  if (!is_aligned(offset) || !is_aligned(bytes) || !is_aligned(memory.data()) || offset > size_ ||
      bytes > size_ - offset) {
    fail(ErrorKind::internal,
         "spill file of {} bytes: {} {} bytes at offset {}: expected multiples of {} within it",
         size_, what, bytes, offset, kDirectAlignment);
  }
  int fruitless = 0;
  for (size_t done = 0; done < bytes;) {
    const ssize_t moved = call(done);
    if (moved < 0 && errno != EINTR && errno != EAGAIN) {
      fail_with(errno, what, offset + done, bytes - done);
    }
    // Bytes that a short answer moved beyond the last aligned byte are moved again.
    const size_t next = moved <= 0 ? done : done + static_cast<size_t>(moved);
    const size_t kept = next == bytes ? bytes : round_down_to_alignment(next);
    fruitless = kept > done ? 0 : fruitless + 1;
    if (fruitless == kMaxFruitlessWrites) fail_with(EIO, what, offset + done, bytes - done);
    done = kept;
  }
}

void SpillFile::fail_with(int error, const char* what, uint64_t offset, size_t bytes) const {
  const std::string folder = path_in_quotes(folder_);
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) {
    fail(ErrorKind::does_not_fit,
         "{}: a spill file of {} bytes ({}) does not fit, {} is free: {}; free some space or name "
         "another folder",
         folder, size_, format_bytes(size_), format_bytes(free_bytes(folder_)),
         std::strerror(error));
  }
  fail(ErrorKind::internal, "{}: {} {} bytes of a spill file at offset {} failed: {}", folder, what,
       bytes, offset, std::strerror(error));
}

}  // namespace klotski
