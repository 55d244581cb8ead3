// Preloaded into the program under test (LD_PRELOAD): makes the k-th call of a kind fail, as a
// machine would that lacks memory, files or a disk. KLOTSKI_FAULTS names the file that says which
// call, and that counts the calls; without it nothing fails.

#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdint>

namespace {

enum Kind { kOpen, kRead, kWrite, kSync, kMap, kMemory, kKinds };

// The file's content, an entry for each kind; fault_sweep_test.py writes and reads it.
struct Calls {
  std::atomic<int64_t> count;  // calls so far
  int64_t first;               // number of the first call that fails, from 1 on; 0: none fails
  int64_t failures;            // number of calls that fail
};

Calls* shared_calls = nullptr;
// Calls count from the first file that the program opens: what runs before main() is not its own.
std::atomic<bool> counting{false};

// Calls the system's own function of that name.
template <typename Result, typename... Arguments>
Result system(const char* name, Arguments... arguments) {
  return reinterpret_cast<Result (*)(Arguments...)>(dlsym(RTLD_NEXT, name))(arguments...);
}

bool fails(Kind kind) {
  if (shared_calls == nullptr || !counting) return false;
  Calls& calls = shared_calls[kind];
  const int64_t number = ++calls.count;
  return calls.first > 0 && number >= calls.first && number < calls.first + calls.failures;
}

bool fails(Kind kind, int with) {
  if (!fails(kind)) return false;
  errno = with;
  return true;
}

bool open_fails() {
  counting = shared_calls != nullptr;
  return fails(kOpen, EMFILE);
}

__attribute__((constructor)) void map_calls() {
  const char* path = getenv("KLOTSKI_FAULTS");
  if (path == nullptr) return;
  const int file = system<int>("open", path, O_RDWR | O_CLOEXEC);
  if (file < 0) return;
  void* const calls = system<void*>("mmap", static_cast<void*>(nullptr), kKinds * sizeof(Calls),
                                    PROT_READ | PROT_WRITE, MAP_SHARED, file, off_t{0});
  close(file);
  if (calls != MAP_FAILED) shared_calls = static_cast<Calls*>(calls);
}

// The mode of a call that may create a file; 0 where it has none.
#define MODE_OF(flags)                                              \
  mode_t mode = 0;                                                  \
  if (((flags)&O_CREAT) != 0 || ((flags)&O_TMPFILE) == O_TMPFILE) { \
    va_list rest;                                                   \
    va_start(rest, flags);                                          \
    mode = va_arg(rest, mode_t);                                    \
    va_end(rest);                                                   \
  }

}  // namespace

extern "C" {

// Reads go through pread(), where they are counted: without io_uring, threads read.
int io_uring_queue_init(unsigned, void*, unsigned) { return -ENOSYS; }
int io_uring_queue_init_params(unsigned, void*, void*) { return -ENOSYS; }

int open(const char* path, int flags, ...) {
  MODE_OF(flags)
  return open_fails() ? -1 : system<int>("open", path, flags, mode);
}
int open64(const char* path, int flags, ...) {
  MODE_OF(flags)
  return open_fails() ? -1 : system<int>("open64", path, flags, mode);
}
int openat(int folder, const char* path, int flags, ...) {
  MODE_OF(flags)
  return open_fails() ? -1 : system<int>("openat", folder, path, flags, mode);
}
int openat64(int folder, const char* path, int flags, ...) {
  MODE_OF(flags)
  return open_fails() ? -1 : system<int>("openat64", folder, path, flags, mode);
}
FILE* fopen(const char* path, const char* mode) {
  return open_fails() ? nullptr : system<FILE*>("fopen", path, mode);
}
FILE* fopen64(const char* path, const char* mode) {
  return open_fails() ? nullptr : system<FILE*>("fopen64", path, mode);
}

ssize_t read(int file, void* to, size_t bytes) {
  return fails(kRead, EIO) ? -1 : system<ssize_t>("read", file, to, bytes);
}
ssize_t pread(int file, void* to, size_t bytes, off_t at) {
  return fails(kRead, EIO) ? -1 : system<ssize_t>("pread", file, to, bytes, at);
}
ssize_t pread64(int file, void* to, size_t bytes, off64_t at) {
  return fails(kRead, EIO) ? -1 : system<ssize_t>("pread64", file, to, bytes, at);
}

// Messages are not counted: a test reads them.
ssize_t write(int file, const void* from, size_t bytes) {
  return file > 2 && fails(kWrite, EIO) ? -1 : system<ssize_t>("write", file, from, bytes);
}
ssize_t pwrite(int file, const void* from, size_t bytes, off_t at) {
  return fails(kWrite, EIO) ? -1 : system<ssize_t>("pwrite", file, from, bytes, at);
}
ssize_t pwrite64(int file, const void* from, size_t bytes, off64_t at) {
  return fails(kWrite, EIO) ? -1 : system<ssize_t>("pwrite64", file, from, bytes, at);
}

int fsync(int file) { return fails(kSync, EIO) ? -1 : system<int>("fsync", file); }
int fdatasync(int file) { return fails(kSync, EIO) ? -1 : system<int>("fdatasync", file); }
int ftruncate(int file, off_t bytes) noexcept {
  return fails(kSync, EIO) ? -1 : system<int>("ftruncate", file, bytes);
}
int ftruncate64(int file, off64_t bytes) noexcept {
  return fails(kSync, EIO) ? -1 : system<int>("ftruncate64", file, bytes);
}
int rename(const char* from, const char* to) noexcept {
  return fails(kSync, EIO) ? -1 : system<int>("rename", from, to);
}

void* mmap(void* at, size_t bytes, int protection, int flags, int file, off_t offset) noexcept {
  if (fails(kMap, ENOMEM)) return MAP_FAILED;
  return system<void*>("mmap", at, bytes, protection, flags, file, offset);
}
void* mmap64(void* at, size_t bytes, int protection, int flags, int file, off64_t offset) noexcept {
  if (fails(kMap, ENOMEM)) return MAP_FAILED;
  return system<void*>("mmap64", at, bytes, protection, flags, file, offset);
}

// The C library's own names: looking up others takes memory.
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* memory, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);

void* malloc(size_t bytes) noexcept {
  return fails(kMemory, ENOMEM) ? nullptr : __libc_malloc(bytes);
}
void* calloc(size_t count, size_t bytes) noexcept {
  return fails(kMemory, ENOMEM) ? nullptr : __libc_calloc(count, bytes);
}
void* realloc(void* memory, size_t bytes) noexcept {
  return fails(kMemory, ENOMEM) ? nullptr : __libc_realloc(memory, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) noexcept {
  return fails(kMemory, ENOMEM) ? nullptr : __libc_memalign(alignment, bytes);
}
int posix_memalign(void** memory, size_t alignment, size_t bytes) noexcept {
  *memory = fails(kMemory) ? nullptr : __libc_memalign(alignment, bytes);
  return *memory == nullptr ? ENOMEM : 0;
}

}  // extern "C"
