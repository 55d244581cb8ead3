#include "base/file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <thread>

#include "base/error.h"

namespace klotski {
namespace {

std::filesystem::path scratch(const std::string& name) {
  return std::filesystem::path(::testing::TempDir()) / (name + std::to_string(::getpid()));
}

std::filesystem::path written(const std::string& name, const std::string& content) {
  const auto path = scratch(name);
  std::ofstream(path, std::ios::binary) << content;
  return path;
}

TEST(File, ReadsAtAnOffset) {
  const File file(written("offset", "0123456789"));
  char out[4];
  file.read_at(3, std::as_writable_bytes(std::span(out)));
  EXPECT_EQ(std::string(out, 4), "3456");
  EXPECT_EQ(file.size(), 10u);
}

TEST(File, RefusesWhatIsNotARegularFile) {
  const auto fifo = scratch("fifo");
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_THROW(File{fifo}, Error);
  ::unlink(fifo.c_str());
  EXPECT_THROW(File{"/dev/zero"}, Error);
  EXPECT_THROW(File{"/"}, Error);
  EXPECT_THROW(File{scratch("absent")}, Error);
}

TEST(File, TruncatedWhileOpenIsAnErrorNotASignal) {
  const auto path = written("truncated", "0123456789");
  const File file(path);
  ASSERT_EQ(::truncate(path.c_str(), 5), 0);
  char out[10];
  EXPECT_THROW(file.read_at(0, std::as_writable_bytes(std::span(out))), Error);
}

TEST(File, NoticesWritesAfterItWasOpened) {
  using namespace std::chrono_literals;
  const auto path = written("changed", "0123456789");
  const auto opened_at = std::filesystem::last_write_time(path);
  const File file(path);
  EXPECT_NO_THROW(file.require_unchanged());
  std::this_thread::sleep_for(20ms);  // times have steps of up to 10 ms
  written("changed", "9876543210");
  EXPECT_THROW(file.require_unchanged(), Error);
  std::filesystem::last_write_time(path, opened_at);
  EXPECT_THROW(file.require_unchanged(), Error);
}

TEST(File, AFileThatLostItsNameIsUnchanged) {
  const auto path = written("renamed", "0123456789");
  const File file(path);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  std::filesystem::rename(written("renamed-new", "9876543210"), path);
  EXPECT_NO_THROW(file.require_unchanged());
  std::filesystem::remove(path);
}

TEST(File, ReadTextFileHasABound) {
  EXPECT_EQ(read_text_file(written("bound", "hello"), 5), "hello");
  EXPECT_THROW(read_text_file(written("bound", "hello!"), 5), Error);
}

// Gives `step` bytes at a time and interrupts every other call; fails call number `failing`.
class UnevenReads : public ReadCalls {
 public:
  UnevenReads(size_t step, int failing) : step_(step), failing_(failing) {}
  ssize_t pread(int descriptor, void* buffer, size_t size, off_t offset) override {
    ++calls;
    if (calls == failing_) {
      errno = EIO;
      return -1;
    }
    if (calls % 2 == 0) {
      errno = calls % 4 == 0 ? EINTR : EAGAIN;
      return -1;
    }
    return ReadCalls::pread(descriptor, buffer, std::min(size, step_), offset);
  }
  int calls = 0;

 private:
  size_t step_;
  int failing_;
};

TEST(File, ShortAndInterruptedReadsAreCompleted) {
  const File file(written("short", "0123456789"));
  for (size_t step = 1; step <= 10; ++step) {
    UnevenReads calls(step, -1);
    const ScopedReadCalls in_force(calls);
    char out[10];
    file.read_at(0, std::as_writable_bytes(std::span(out)));
    EXPECT_EQ(std::string(out, 10), "0123456789");
  }
}

TEST(File, EveryFailingReadIsReported) {
  const File file(written("failing", "0123456789"));
  for (int failing = 1; failing <= 19; ++failing) {
    UnevenReads calls(1, failing);
    const ScopedReadCalls in_force(calls);
    char out[10];
    EXPECT_THROW(file.read_at(0, std::as_writable_bytes(std::span(out))), Error) << failing;
  }
}

TEST(File, EndlessInterruptionIsGivenUp) {
  class Interrupted : public ReadCalls {
    ssize_t pread(int, void*, size_t, off_t) override {
      errno = EINTR;
      return -1;
    }
  } calls;
  const File file(written("endless", "0123456789"));
  const ScopedReadCalls in_force(calls);
  char out[10];
  EXPECT_THROW(file.read_at(0, std::as_writable_bytes(std::span(out))), Error);
}

}  // namespace
}  // namespace klotski
