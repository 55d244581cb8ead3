// Each answer the kernel may give to a read, at each place, for both methods.

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <random>

#include "base/error.h"
#include "memory/arena.h"
#include "memory/disk_reader.h"
#include "memory/testing.h"

namespace klotski {
namespace {

using testing::RandomFile;

constexpr uint64_t kFileBytes = 200'001;
constexpr uint64_t kExtentBytes = round_up_to_alignment(kFileBytes);
constexpr uint64_t kBlockBytes = 16 * kKiB;
constexpr int kBlocks = (kExtentBytes + kBlockBytes - 1) / kBlockBytes;

// Replaces the answers that `fault` picks; call numbers begin at 0. Bytes that the kernel has
// written beyond a replaced answer are destroyed, so that they count only if they are read again.
class FaultHook : public ReadHook {
 public:
  using Fault = std::function<int64_t(int call, int64_t result)>;
  explicit FaultHook(Fault fault) : fault_(std::move(fault)) {}
  void submitted(const ReadRequest& request) noexcept override {
    ++under_way;
    misaligned = misaligned || !is_aligned(request.offset) || !is_aligned(request.bytes) ||
                 !is_aligned(request.destination);
  }
  int64_t completed(const ReadRequest& request, int64_t result) noexcept override {
    --under_way;
    const int64_t answer = fault_(calls++, result);
    const int64_t kept = std::max<int64_t>(answer, 0);
    if (answer != result) std::fill(request.destination + kept, request.destination + result, kBad);
    return answer;
  }
  int calls = 0;
  int under_way = 0;
  bool misaligned = false;

 private:
  static constexpr std::byte kBad{0xEE};
  Fault fault_;
};

class DiskReaderFault : public ::testing::TestWithParam<ReadMethod> {
 protected:
  void SetUp() override {
    if (GetParam() == ReadMethod::io_uring && make_uring_queue(1) == nullptr) {
      GTEST_SKIP() << "io_uring is refused here";
    }
  }

  // Reads the whole file under the hook; the message of the error, or nothing.
  std::string read_under(FaultHook& hook, int attempts = 3) {
    DiskReaderOptions options;
    options.method = GetParam();
    options.queue_depth = 4;
    options.block_bytes = kBlockBytes;
    options.attempts = attempts;
    options.hook = &hook;
    DiskReader reader(options);
    std::fill(arena.bytes().begin(), arena.bytes().end(), std::byte{0});
    std::string message;
    try {
      reader.read(std::vector<ReadExtent>{{&direct, 0, kExtentBytes, arena.bytes().data()}});
    } catch (const Error& error) {
      message = error.what();
      kind = error.kind();
    }
    counts = reader.counts();
    EXPECT_EQ(hook.under_way, 0);
    EXPECT_FALSE(hook.misaligned);
    return message;
  }

  void expect_whole() {
    EXPECT_TRUE(std::equal(file.content().begin(), file.content().end(), arena.bytes().begin()));
    EXPECT_EQ(counts.bytes, kFileBytes);
  }

  const RandomFile file{::testing::TempDir(), kFileBytes, 11};
  const DirectFile direct = file.open();
  Tier tier{"ram", kGiB};
  const Arena arena{tier, "test", kExtentBytes};
  ReadCounts counts;
  ErrorKind kind = ErrorKind::usage;
};

INSTANTIATE_TEST_SUITE_P(Methods, DiskReaderFault,
                         ::testing::Values(ReadMethod::io_uring, ReadMethod::threads),
                         [](const auto& method) {
                           return method.param == ReadMethod::io_uring ? "io_uring" : "threads";
                         });

TEST_P(DiskReaderFault, ShortReadsOfEachKindAtEachCall) {
  for (const int64_t length : {1, 511, 4095, 4096, 4097, 12'288, 16'383}) {
    for (int k = 0; k < kBlocks; ++k) {
      FaultHook hook([&](int call, int64_t result) {
        return call == k ? std::min<int64_t>(result - 1, length) : result;
      });
      EXPECT_EQ(read_under(hook), "") << length << " at call " << k;
      EXPECT_EQ(counts.retried, 1u);
      expect_whole();
    }
  }
}

TEST_P(DiskReaderFault, ManyShortAndInterruptedReads) {
  std::mt19937 random(5);
  for (int round = 0; round < 20; ++round) {
    FaultHook hook([&](int, int64_t result) -> int64_t {
      switch (random() % 5) {
        case 0:
          return -EINTR;
        case 1:
          return -EAGAIN;
        case 2:
          return result;
        default:
          return 1 + static_cast<int64_t>(random()) % result;
      }
    });
    EXPECT_EQ(read_under(hook), "");
    EXPECT_GT(counts.retried, 0u);
    expect_whole();
  }
}

TEST_P(DiskReaderFault, InterruptionsAtEachCallAreRepeated) {
  for (const int error : {EINTR, EAGAIN}) {
    for (int k = 0; k < kBlocks; ++k) {
      FaultHook hook([&](int call, int64_t result) { return call == k ? -error : result; });
      EXPECT_EQ(read_under(hook), "");
      EXPECT_EQ(counts.retried, 1u);
      expect_whole();
    }
  }
}

TEST_P(DiskReaderFault, EndlessInterruptionsAndTooShortReadsAreGivenUp) {
  for (const int64_t answer : {-EINTR, -EAGAIN, 100}) {
    FaultHook hook([&](int, int64_t) { return answer; });
    EXPECT_NE(read_under(hook), "");
    EXPECT_EQ(kind, ErrorKind::internal);
  }
}

TEST_P(DiskReaderFault, ErrorOnceIsRepeated) {
  for (int k = 0; k < kBlocks; ++k) {
    FaultHook hook([&](int call, int64_t result) { return call == k ? -EIO : result; });
    EXPECT_EQ(read_under(hook), "");
    EXPECT_EQ(counts.retried, 1u);
    expect_whole();
  }
}

TEST_P(DiskReaderFault, ErrorForeverIsReportedAfterTheAttempts) {
  for (int k = 0; k < kBlocks; ++k) {
    FaultHook hook([&](int call, int64_t result) { return call >= k ? -EIO : result; });
    const std::string message = read_under(hook);
    EXPECT_NE(message.find("failed 3 times"), std::string::npos) << message;
    EXPECT_NE(message.find(file.path().native()), std::string::npos) << message;
    EXPECT_EQ(kind, ErrorKind::internal);
  }
  FaultHook hook([&](int, int64_t) { return -EIO; });
  EXPECT_NE(read_under(hook, 1), "");
  EXPECT_EQ(counts.retried, 0u);
}

// Errors of one place alone count: a block in which a read got further is tried as often again.
TEST_P(DiskReaderFault, ErrorsBeforeAndAfterProgressDoNotAddUp) {
  ReadBlock block;
  block.range = {&direct, 0, kBlockBytes, arena.bytes().data()};
  block.wanted = kBlockBytes;
  for (uint64_t done = 0; done + kDirectAlignment < kBlockBytes; done += kDirectAlignment) {
    EXPECT_EQ(take_answer(block, -EIO, 3), BlockState::again);
    EXPECT_EQ(take_answer(block, -EIO, 3), BlockState::again);
    EXPECT_EQ(take_answer(block, kDirectAlignment, 3), BlockState::again);
    EXPECT_EQ(block.done, done + kDirectAlignment);
  }
  EXPECT_EQ(take_answer(block, -EIO, 2), BlockState::again);
  EXPECT_EQ(take_answer(block, -EIO, 2), BlockState::failed);
}

TEST_P(DiskReaderFault, OtherErrorsAreNotRepeated) {
  for (int k = 0; k < kBlocks; ++k) {
    FaultHook hook([&](int call, int64_t result) { return call == k ? -EBADF : result; });
    EXPECT_NE(read_under(hook), "");
    EXPECT_EQ(counts.retried, 0u);
    EXPECT_LE(counts.requests, static_cast<uint64_t>(k + 4));  // none begins after the error
  }
}

TEST_P(DiskReaderFault, NothingBeforeTheEndMeansTheFileIsShorter) {
  for (int k = 0; k < kBlocks; ++k) {
    FaultHook hook([&](int call, int64_t result) { return call == k ? 0 : result; });
    const std::string message = read_under(hook);
    EXPECT_NE(message.find("expected 200001 bytes"), std::string::npos) << message;
    EXPECT_EQ(kind, ErrorKind::bad_model);
  }
}

TEST_P(DiskReaderFault, ReaderWorksAgainAfterAnError) {
  bool broken = true;
  FaultHook hook([&](int, int64_t result) { return broken ? -EBADF : result; });
  DiskReaderOptions options;
  options.method = GetParam();
  options.block_bytes = kBlockBytes;
  options.hook = &hook;
  DiskReader reader(options);
  const std::vector<ReadExtent> extents{{&direct, 0, kExtentBytes, arena.bytes().data()}};
  EXPECT_THROW(reader.read(extents), Error);
  broken = false;
  reader.read(extents);
  EXPECT_TRUE(std::equal(file.content().begin(), file.content().end(), arena.bytes().begin()));
}

}  // namespace
}  // namespace klotski
