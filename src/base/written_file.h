#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "base/error.h"

namespace klotski {

// The disk or the user's share of it is full: the same call may succeed later.
class DiskFull : public Error {
 public:
  explicit DiskFull(const std::string& message) : Error(ErrorKind::internal, message) {}
};

// A descriptor that whoever takes it will close.
struct TakenDescriptor {
  int descriptor = -1;
};

// A file open for writing at given places. A full disk throws DiskFull, any other failure an Error
// of kind internal that names the file.
class WrittenFile {
 public:
  // `flags` are those of open(2), without O_CLOEXEC. Refuses (usage) a path that cannot be opened.
  WrittenFile(const std::filesystem::path& path, int flags);
  // Takes over an open descriptor.
  WrittenFile(std::filesystem::path path, TakenDescriptor taken);
  ~WrittenFile();
  WrittenFile(WrittenFile&& other) noexcept;
  WrittenFile& operator=(WrittenFile&& other) noexcept;
  WrittenFile(const WrittenFile&) = delete;
  WrittenFile& operator=(const WrittenFile&) = delete;

  // An unnamed file in the folder for temporary files.
  static WrittenFile temporary();

  const std::filesystem::path& path() const { return path_; }
  int descriptor() const { return descriptor_; }
  uint64_t size() const;
  bool regular() const;

  // Locks the file until it is closed; false where another process has locked it.
  [[nodiscard]] bool lock();
  // Whether the path still names this file.
  bool named() const;

  void read_at(uint64_t offset, std::span<char> out) const;
  void write_at(uint64_t offset, std::string_view bytes);
  // Writes some of the bytes where the last write ended and returns how many: for pipes.
  size_t write_some(std::string_view bytes);
  void truncate(uint64_t size);
  void sync();

 private:
  [[noreturn]] void fail_with(std::string_view problem) const;

  std::filesystem::path path_;
  int descriptor_ = -1;
};

// Makes sure that names created, renamed or removed in the file's folder are on the disk.
void sync_folder_of(const std::filesystem::path& file);
void rename_file(const std::filesystem::path& from, const std::filesystem::path& to);
void remove_file(const std::filesystem::path& path);

}  // namespace klotski
