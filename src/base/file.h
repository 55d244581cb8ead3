#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace klotski {

// The one seam through which model, tokenizer and template files are read. Tests replace it to fail
// or shorten the k-th read.
class ReadCalls {
 public:
  virtual ~ReadCalls() = default;
  virtual ssize_t pread(int descriptor, void* buffer, size_t size, off_t offset);
};

// The calls in force, for readers that need another descriptor than a File's.
ReadCalls& read_calls();

// Puts `calls` in force until the guard dies. Not for use while other threads read.
class ScopedReadCalls {
 public:
  explicit ScopedReadCalls(ReadCalls& calls);
  ~ScopedReadCalls();
  ScopedReadCalls(const ScopedReadCalls&) = delete;
  ScopedReadCalls& operator=(const ScopedReadCalls&) = delete;

 private:
  ReadCalls* previous_;
};

// A regular file opened for positional reads. Files are never mapped: a file that shrinks under a
// mapping kills the process, a short read is an error that can be reported.
class File {
 public:
  // Refuses folders, FIFOs, devices and all else but regular files, without blocking on them.
  explicit File(const std::filesystem::path& path);
  ~File();
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  const std::filesystem::path& path() const { return path_; }
  uint64_t size() const { return size_; }
  int descriptor() const { return descriptor_; }

  // Fills `out` from byte `offset` on; throws if the file ends before or cannot be read.
  void read_at(uint64_t offset, std::span<std::byte> out) const;

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  uint64_t size_ = 0;
};

// The whole of a text file of at most max_bytes.
std::string read_text_file(const std::filesystem::path& path, uint64_t max_bytes);

}  // namespace klotski
