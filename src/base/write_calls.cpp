#include "base/write_calls.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <utility>

namespace klotski {

namespace {

WriteCalls default_write_calls;
WriteCalls* current_write_calls = &default_write_calls;

}  // namespace

int WriteCalls::open(const char* path, int flags, mode_t mode) { return ::open(path, flags, mode); }
ssize_t WriteCalls::write(int descriptor, const void* bytes, size_t size) {
  return ::write(descriptor, bytes, size);
}
ssize_t WriteCalls::pwrite(int descriptor, const void* bytes, size_t size, off_t offset) {
  return ::pwrite(descriptor, bytes, size, offset);
}
int WriteCalls::fsync(int descriptor) { return ::fsync(descriptor); }
int WriteCalls::ftruncate(int descriptor, off_t size) { return ::ftruncate(descriptor, size); }
int WriteCalls::rename(const char* from, const char* to) { return ::rename(from, to); }
int WriteCalls::unlink(const char* path) { return ::unlink(path); }

WriteCalls& write_calls() { return *current_write_calls; }

ScopedWriteCalls::ScopedWriteCalls(WriteCalls& calls)
    : previous_(std::exchange(current_write_calls, &calls)) {}

ScopedWriteCalls::~ScopedWriteCalls() { current_write_calls = previous_; }

}  // namespace klotski
