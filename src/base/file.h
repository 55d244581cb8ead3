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

// Facts that tell a file from others, and from itself after somebody wrote to it.
struct FileIdentity {
  uint64_t device = 0;
  uint64_t inode = 0;
  uint64_t bytes = 0;
  uint64_t links = 0;
  int64_t modified_ns = 0;
  int64_t changed_ns = 0;  // set by writes too, and by programs that set the other time back

  // A file that lost or got a name has another change time and the same content.
  bool same_content(const FileIdentity& other) const;
};

// A regular file opened for positional reads. Files are never mapped: a file that shrinks under a
// mapping kills the process, a short read is an error that can be reported.
class File {
 public:
  // Refuses folders, FIFOs, devices and all else but regular files, without blocking on them.
  explicit File(const std::filesystem::path& path);
  // The file at a real path, as file_in_folder() gives it. A link that somebody put there since is
  // refused, not followed: every folder on the way is opened for itself.
  static File at_real_path(const std::filesystem::path& path);
  ~File();
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  const std::filesystem::path& path() const { return path_; }
  uint64_t size() const { return identity_.bytes; }
  int descriptor() const { return descriptor_; }
  const FileIdentity& identity() const { return identity_; }  // when it was opened

  // Refuses (bad_model) a file that somebody wrote to since it was opened. Called after a read, it
  // vouches for the bytes read: a write sets the times before its bytes can be seen. Times have
  // steps of some milliseconds, and writes through a mapping set them late.
  void require_unchanged() const;

  // Fills `out` from byte `offset` on; throws if the file ends before or cannot be read.
  void read_at(uint64_t offset, std::span<std::byte> out) const;

 private:
  // Takes over the descriptor; a negative one is the failure that errno names.
  File(std::filesystem::path path, int descriptor);

  std::filesystem::path path_;
  int descriptor_ = -1;
  FileIdentity identity_;
};

// The whole of a text file of at most max_bytes.
std::string read_text_file(const std::filesystem::path& path, uint64_t max_bytes);
std::string read_text_file(const File& file, uint64_t max_bytes);

}  // namespace klotski
