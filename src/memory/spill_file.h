#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include "memory/spill_store.h"

namespace klotski {

// The seam for spill files; each answers as the system call of its name. Tests replace it to fail
// or shorten the k-th call. Called by several threads at once.
class SpillCalls {
 public:
  virtual ~SpillCalls() = default;
  virtual int posix_fallocate(int descriptor, off_t offset, off_t size);
  virtual ssize_t pwrite(int descriptor, const void* buffer, size_t size, off_t offset);
  virtual ssize_t pread(int descriptor, void* buffer, size_t size, off_t offset);

  static SpillCalls& system();
};

// A temporary file without a name, for data that does not fit in memory; it is gone when the
// process is, however that ends. Its space is taken when it is made, so that a full disk shows
// then, not midway.
class SpillFile : public SpillStore {
 public:
  // Throws does_not_fit where the folder has no room for `bytes`. `calls` must live longer.
  SpillFile(const std::filesystem::path& folder, uint64_t bytes,
            SpillCalls& calls = SpillCalls::system());
  ~SpillFile() override;
  SpillFile(const SpillFile&) = delete;
  SpillFile& operator=(const SpillFile&) = delete;

  uint64_t size() const { return size_; }
  bool direct() const { return direct_; }  // past the page cache

  // Offsets, lengths and addresses are multiples of kDirectAlignment. Any number of threads at
  // once, as long as they keep to different bytes. A failed write leaves its bytes in no known
  // state.
  void write(std::span<const SpillWrite> pieces) override;
  void read(std::span<const SpillRead> pieces) const override;
  void write(uint64_t offset, std::span<const std::byte> data);
  void read(uint64_t offset, std::span<std::byte> out) const;

 private:
  template <typename Call>
  void transfer(const char* what, uint64_t offset, std::span<const std::byte> memory,
                Call call) const;
  void reserve_space();
  [[noreturn]] void fail_with(int error, const char* what, uint64_t offset, size_t bytes) const;

  std::filesystem::path folder_;
  uint64_t size_;
  SpillCalls& calls_;
  int descriptor_ = -1;
  bool direct_ = false;
};

}  // namespace klotski
