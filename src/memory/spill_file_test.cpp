#include "memory/spill_file.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "memory/alignment.h"
#include "memory/arena.h"
#include "memory/testing.h"

namespace klotski {
namespace {

constexpr size_t kBytes = 64 * kKiB;

// The k-th call answers `error`, or is shortened to `length` where error is 0.
class FaultCalls : public SpillCalls {
 public:
  FaultCalls(int failing, int error, size_t length)
      : failing_(failing), error_(error), length_(length) {}
  int posix_fallocate(int descriptor, off_t offset, off_t size) override {
    const bool now = ++calls == failing_ && error_ != 0;
    return now ? error_ : SpillCalls::posix_fallocate(descriptor, offset, size);
  }
  ssize_t pwrite(int descriptor, const void* buffer, size_t size, off_t offset) override {
    if (++calls != failing_) return SpillCalls::pwrite(descriptor, buffer, size, offset);
    errno = error_;
    if (error_ != 0) return -1;
    // The kernel writes whole blocks here; the answer claims less.
    return std::min(SpillCalls::pwrite(descriptor, buffer, size, offset), shortened());
  }
  ssize_t pread(int descriptor, void* buffer, size_t size, off_t offset) override {
    if (++calls != failing_) return SpillCalls::pread(descriptor, buffer, size, offset);
    errno = error_;
    if (error_ != 0) return -1;
    const ssize_t got = SpillCalls::pread(descriptor, buffer, size, offset);
    if (got > shortened()) std::memset(static_cast<char*>(buffer) + length_, 0xEE, size - length_);
    return std::min(got, shortened());
  }
  std::atomic<int> calls{0};

 private:
  ssize_t shortened() const { return static_cast<ssize_t>(length_); }
  int failing_;
  int error_;
  size_t length_;
};

struct Memory {
  Tier tier{"ram", kGiB};
  Arena in{tier, "test", kBytes};
  Arena out{tier, "test", kBytes};

  Memory() {
    const auto bytes = testing::random_bytes(kBytes, 9);
    std::copy(bytes.begin(), bytes.end(), in.bytes().begin());
  }
  bool equal() const {
    return std::equal(in.bytes().begin(), in.bytes().end(), out.bytes().begin());
  }
};

TEST(SpillFile, GivesBackWhatWasWrittenAndLeavesNoName) {
  for (const auto& parent : testing::folders()) {
    const auto folder = parent / ("klotski-spill-test" + std::to_string(::getpid()));
    std::filesystem::create_directory(folder);
    {
      Memory memory;
      SpillFile file(folder, 4 * kBytes);
      EXPECT_TRUE(std::filesystem::is_empty(folder));
      EXPECT_EQ(file.size(), 4 * kBytes);
      file.write(3 * kBytes, memory.in.bytes());
      file.read(3 * kBytes, memory.out.bytes());
      EXPECT_TRUE(memory.equal());
      file.read(0, memory.out.bytes());
      EXPECT_EQ(memory.out.bytes()[0], std::byte{0});
    }
    EXPECT_TRUE(std::filesystem::remove(folder));
  }
}

TEST(SpillFile, RefusesWhatIsNotAlignedOrOutside) {
  Memory memory;
  SpillFile file(::testing::TempDir(), kBytes);
  const auto in = memory.in.bytes();
  EXPECT_THROW(file.write(1, in.first(4096)), Error);
  EXPECT_THROW(file.write(0, in.first(100)), Error);
  EXPECT_THROW(file.write(0, in.subspan(512, 4096)), Error);
  EXPECT_THROW(file.write(4096, in), Error);
  EXPECT_THROW(file.read(UINT64_MAX - 4095, memory.out.bytes()), Error);
  file.write(0, in.first(0));
}

TEST(SpillFile, ThreadsAtOnce) {
  Tier tier("ram", kGiB);
  constexpr int kThreads = 4;
  SpillFile file(::testing::TempDir(), kThreads * kBytes);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      Memory memory;
      std::mt19937_64 random(static_cast<uint64_t>(t));
      for (int round = 0; round < 20; ++round) {
        const size_t begin = round_down_to_alignment(random() % kBytes);
        memory.in.bytes()[begin] = static_cast<std::byte>(random());
        file.write(static_cast<uint64_t>(t) * kBytes, memory.in.bytes());
        file.read(static_cast<uint64_t>(t) * kBytes, memory.out.bytes());
        EXPECT_TRUE(memory.equal());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(SpillFile, NoRoomIsSaidWhenItIsMade) {
  try {
    const SpillFile file(::testing::TempDir(), uint64_t{1} << 62);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::does_not_fit);
  }
  EXPECT_THROW(SpillFile(::testing::TempDir(), UINT64_MAX), Error);
  FaultCalls calls(1, ENOSPC, 0);
  try {
    const SpillFile file(::testing::TempDir(), kBytes, calls);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::does_not_fit);
    const std::string message = error.what();
    EXPECT_NE(message.find("65536 bytes"), std::string::npos) << message;
    EXPECT_NE(message.find("is free"), std::string::npos) << message;
  }
  const auto missing = std::filesystem::path(::testing::TempDir()) /
                       ("klotski-no-spill-folder" + std::to_string(::getpid()));
  EXPECT_THROW(SpillFile(missing, kBytes), Error);
}

// Makes a file, writes it in four parts and reads them back: nine calls.
void use(SpillCalls& calls, Memory& memory) {
  SpillFile file(::testing::TempDir(), kBytes, calls);
  constexpr size_t kPart = kBytes / 4;
  for (size_t at = 0; at < kBytes; at += kPart) {
    file.write(at, memory.in.bytes().subspan(at, kPart));
  }
  for (size_t at = 0; at < kBytes; at += kPart) {
    file.read(at, memory.out.bytes().subspan(at, kPart));
  }
}

TEST(SpillFile, EveryFailingCallIsReported) {
  for (const int error : {ENOSPC, EDQUOT, EIO, EROFS}) {
    for (int k = 1; k <= 9; ++k) {
      Memory memory;
      FaultCalls calls(k, error, 0);
      try {
        use(calls, memory);
        FAIL() << k;
      } catch (const Error& caught) {
        const bool full = error == ENOSPC || error == EDQUOT;
        EXPECT_EQ(caught.kind(), full ? ErrorKind::does_not_fit : ErrorKind::internal);
      }
      EXPECT_EQ(calls.calls, k);
    }
  }
}

TEST(SpillFile, EveryShortOrInterruptedCallIsCompleted) {
  for (int k = 1; k <= 9; ++k) {
    for (const size_t length : {0, 1, 4095, 4096, 5000, 12'288}) {
      Memory memory;
      FaultCalls calls(k, 0, length);
      use(calls, memory);
      EXPECT_TRUE(memory.equal()) << k << " " << length;
    }
    // A busy disk answers a write or a read with EAGAIN; a reservation never does.
    for (const int error : {EINTR, EAGAIN}) {
      if (error == EAGAIN && k == 1) continue;
      Memory memory;
      FaultCalls interrupted(k, error, 0);
      use(interrupted, memory);
      EXPECT_TRUE(memory.equal()) << k;
      EXPECT_EQ(interrupted.calls, 10);
    }
  }
}

// Thousands of short answers are no failure as long as each moves some bytes.
TEST(SpillFile, AnyNumberOfShortAnswersIsCompleted) {
  class ShortAnswers : public SpillCalls {
   public:
    ssize_t pwrite(int descriptor, const void* buffer, size_t size, off_t offset) override {
      ++calls;
      return SpillCalls::pwrite(descriptor, buffer, std::min<size_t>(size, kDirectAlignment),
                                offset);
    }
    int calls = 0;
  } calls;
  constexpr size_t kLarge = 2000 * kDirectAlignment;
  Tier tier("ram", kGiB);
  const Arena memory(tier, "test", kLarge);
  SpillFile file(::testing::TempDir(), kLarge, calls);
  file.write(0, memory.bytes());
  EXPECT_EQ(calls.calls, 2000);
}

TEST(SpillFile, EndlessInterruptionIsGivenUp) {
  class Interrupted : public SpillCalls {
    ssize_t pwrite(int, const void*, size_t, off_t) override {
      errno = EINTR;
      return -1;
    }
  } calls;
  Memory memory;
  SpillFile file(::testing::TempDir(), kBytes, calls);
  EXPECT_THROW(file.write(0, memory.in.bytes()), Error);
}

}  // namespace
}  // namespace klotski
