#pragma once

#include <sys/types.h>

#include <cstddef>

namespace klotski {

// The one seam through which results, journals and new files are written. Tests replace it to fail,
// shorten or never return from the k-th call.
class WriteCalls {
 public:
  virtual ~WriteCalls() = default;
  virtual int open(const char* path, int flags, mode_t mode);
  virtual ssize_t write(int descriptor, const void* bytes, size_t size);
  virtual ssize_t pwrite(int descriptor, const void* bytes, size_t size, off_t offset);
  virtual int fsync(int descriptor);
  virtual int ftruncate(int descriptor, off_t size);
  virtual int rename(const char* from, const char* to);
  virtual int unlink(const char* path);
};

// The calls in force.
WriteCalls& write_calls();

// Puts `calls` in force until the guard dies. Not for use while other threads write.
class ScopedWriteCalls {
 public:
  explicit ScopedWriteCalls(WriteCalls& calls);
  ~ScopedWriteCalls();
  ScopedWriteCalls(const ScopedWriteCalls&) = delete;
  ScopedWriteCalls& operator=(const ScopedWriteCalls&) = delete;

 private:
  WriteCalls* previous_;
};

}  // namespace klotski
