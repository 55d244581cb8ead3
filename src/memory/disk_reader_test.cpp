#include "memory/disk_reader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <random>
#include <thread>

#include "base/error.h"
#include "memory/arena.h"
#include "memory/testing.h"

namespace klotski {
namespace {

using testing::RandomFile;

class DiskReaderMethod : public ::testing::TestWithParam<ReadMethod> {
 protected:
  void SetUp() override {
    if (GetParam() == ReadMethod::io_uring && make_uring_queue(1) == nullptr) {
      GTEST_SKIP() << "io_uring is refused here";
    }
  }
  DiskReaderOptions options() const {
    DiskReaderOptions result;
    result.method = GetParam();
    return result;
  }
  Tier tier{"ram", kGiB};
};

INSTANTIATE_TEST_SUITE_P(Methods, DiskReaderMethod,
                         ::testing::Values(ReadMethod::io_uring, ReadMethod::threads),
                         [](const auto& method) {
                           return method.param == ReadMethod::io_uring ? "io_uring" : "threads";
                         });

// Compares the bytes of the file that an extent holds with those that arrived.
void expect_arrived(const ReadExtent& extent, const RandomFile& file) {
  const uint64_t size = file.content().size();
  const uint64_t bytes = extent.offset >= size ? 0 : std::min(extent.bytes, size - extent.offset);
  EXPECT_TRUE(std::equal(extent.destination, extent.destination + bytes,
                         file.content().data() + std::min(extent.offset, size)))
      << extent.bytes << " bytes at " << extent.offset << " of " << size;
}

TEST_P(DiskReaderMethod, RandomExtentsArriveByteForByte) {
  std::mt19937_64 random(17);
  for (const auto& folder : testing::folders()) {
    for (int round = 0; round < 12; ++round) {
      const RandomFile a(folder, random() % 3'000'000, random());
      const RandomFile b(folder, random() % 20'000, random());
      const DirectFile files[] = {a.open(), b.open()};
      DiskReaderOptions chosen = options();
      chosen.queue_depth = 1 + static_cast<int>(random() % 9);
      chosen.block_bytes = kDirectAlignment * (1 + random() % 64);
      DiskReader reader(chosen);
      constexpr int kExtents = 12;
      const BufferPool pool(tier, "test", kExtents, 400'000);
      std::vector<ReadExtent> extents;
      for (int64_t i = 0; i < kExtents; ++i) {
        const DirectFile& file = files[random() % 2];
        extents.push_back({&file, round_down_to_alignment(random() % (file.size() + 8192)),
                           round_down_to_alignment(random() % pool.buffer_bytes()),
                           pool.buffer(i).data()});
      }
      reader.read(extents);
      for (const ReadExtent& extent : extents) {
        expect_arrived(extent, extent.file == &files[0] ? a : b);
      }
    }
  }
}

TEST_P(DiskReaderMethod, CountsBytesOfTheFileOnly) {
  const RandomFile file(::testing::TempDir(), 10'000, 1);
  const DirectFile direct = file.open();
  EXPECT_EQ(direct.size(), 10'000u);
  EXPECT_EQ(direct.path(), file.path());
  DiskReader reader(options());
  const Arena arena(tier, "test", 1 << 20);
  const ReadExtent extents[] = {{&direct, 0, 1 << 20, arena.bytes().data()},
                                {&direct, 12288, 4096, arena.bytes().data()},
                                {&direct, 0, 0, arena.bytes().data()}};
  reader.read(extents);
  EXPECT_EQ(reader.counts().bytes, 10'000u);
  EXPECT_EQ(reader.counts().requests, 1u);
  EXPECT_EQ(reader.counts().retried, 0u);
  expect_arrived(extents[0], file);
  reader.read({});
  EXPECT_EQ(reader.method(), GetParam());
}

TEST_P(DiskReaderMethod, RefusesWhatIsNotAligned) {
  const RandomFile file(::testing::TempDir(), 10'000, 1);
  const DirectFile direct = file.open();
  DiskReader reader(options());
  const Arena arena(tier, "test", 1 << 20);
  std::byte* memory = arena.bytes().data();
  for (const ReadExtent& extent :
       {ReadExtent{&direct, 1, 4096, memory}, ReadExtent{&direct, 0, 100, memory},
        ReadExtent{&direct, 0, 4096, memory + 512}}) {
    const ReadExtent good{&direct, 0, 4096, memory};
    EXPECT_THROW(reader.read(std::vector{good, extent}), Error);
  }
  EXPECT_EQ(reader.counts().requests, 0u);
}

TEST_P(DiskReaderMethod, FileCutWhileOpenIsNamed) {
  for (const auto& folder : testing::folders()) {
    for (const uint64_t left : {0, 1, 4095, 4096, 5000, 8192, 99'999}) {
      const RandomFile file(folder, 100'000, 3);
      const DirectFile direct = file.open();
      std::filesystem::resize_file(file.path(), left);
      DiskReaderOptions chosen = options();
      chosen.block_bytes = 8192;
      DiskReader reader(chosen);
      const Arena arena(tier, "test", 1 << 20);
      try {
        reader.read(std::vector<ReadExtent>{{&direct, 0, 102'400, arena.bytes().data()}});
        FAIL() << left;
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::bad_model);
        const std::string message = error.what();
        EXPECT_NE(message.find(file.path().native()), std::string::npos) << message;
        EXPECT_NE(message.find("expected 100000 bytes"), std::string::npos) << message;
        EXPECT_NE(message.find("found " + std::to_string(left)), std::string::npos) << message;
      }
    }
  }
}

TEST_P(DiskReaderMethod, ReadsTheFileThatWasOpenedNotItsSuccessor) {
  const RandomFile file(::testing::TempDir(), 50'000, 4);
  auto opened = std::make_shared<const File>(file.path());
  std::filesystem::remove(file.path());
  std::ofstream(file.path()) << "another";
  const DirectFile direct(opened);
  DiskReader reader(options());
  const Arena arena(tier, "test", 1 << 20);
  const ReadExtent extent{&direct, 0, 53'248, arena.bytes().data()};
  reader.read(std::vector{extent});
  expect_arrived(extent, file);
}

TEST_P(DiskReaderMethod, PacingHoldsTheLimit) {
  const RandomFile file(::testing::TempDir(), 2'000'000, 5);
  const DirectFile direct = file.open();
  DiskReaderOptions chosen = options();
  chosen.block_bytes = 64 * kKiB;
  chosen.bytes_per_second = 10'000'000;
  DiskReader reader(chosen);
  const Arena arena(tier, "test", 2 * kMiB);
  // 4 MB at 10 MB/s. No attempt may be faster; a busy machine makes some slower, not all of them.
  constexpr double kSeconds = 0.4;
  double fastest = 1e9;
  for (int attempt = 0; attempt < 8 && fastest > 1.2 * kSeconds; ++attempt) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < 2; ++i) {
      reader.read(std::vector<ReadExtent>{{&direct, 0, 2 * kMiB, arena.bytes().data()}});
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    EXPECT_GE(took.count(), 0.399);
    fastest = std::min(fastest, took.count());
  }
  EXPECT_LE(fastest, 1.2 * kSeconds);
}

// How many requests are under way, and the most there ever were.
class DepthHook : public ReadHook {
 public:
  void submitted(const ReadRequest&) noexcept override { most = std::max(most, ++now); }
  int64_t completed(const ReadRequest&, int64_t result) noexcept override {
    --now;
    return result;
  }
  int now = 0;
  int most = 0;
};

TEST_P(DiskReaderMethod, QueueIsAsDeepAsAskedAndNotDeeper) {
  const RandomFile file(::testing::TempDir(), 1'000'000, 6);
  const DirectFile direct = file.open();
  const Arena arena(tier, "test", kMiB);
  for (int depth = 1; depth <= 9; ++depth) {
    DepthHook hook;
    DiskReaderOptions chosen = options();
    chosen.queue_depth = depth;
    chosen.block_bytes = 4096;
    chosen.hook = &hook;
    DiskReader reader(chosen);
    const ReadExtent extent{&direct, 0, kMiB, arena.bytes().data()};
    reader.read(std::vector{extent});
    EXPECT_EQ(hook.most, depth);
    EXPECT_EQ(hook.now, 0);
    expect_arrived(extent, file);
  }
}

TEST_P(DiskReaderMethod, SeveralReadersAtOnce) {
  const RandomFile file(::testing::TempDir(), 3'000'000, 7);
  const DirectFile direct = file.open();
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      DiskReader reader(options());
      const Arena arena(tier, "test", 3 * kMiB);
      const ReadExtent extent{&direct, 0, 3 * kMiB, arena.bytes().data()};
      for (int round = 0; round < 3; ++round) reader.read(std::vector{extent});
      expect_arrived(extent, file);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(DiskReader, ThreadsGoThroughTheSeamForFileReads) {
  class CountingReads : public ReadCalls {
   public:
    ssize_t pread(int descriptor, void* buffer, size_t size, off_t offset) override {
      ++calls;
      return ReadCalls::pread(descriptor, buffer, size, offset);
    }
    std::atomic<int> calls{0};
  } calls;
  Tier tier("ram", kGiB);
  const RandomFile file(::testing::TempDir(), 40'960, 8);
  const DirectFile direct = file.open();
  const Arena arena(tier, "test", kMiB);
  const ScopedReadCalls in_force(calls);
  DiskReaderOptions options;
  options.method = ReadMethod::threads;
  options.block_bytes = 4096;
  DiskReader(options).read(std::vector<ReadExtent>{{&direct, 0, 40'960, arena.bytes().data()}});
  EXPECT_EQ(calls.calls, 10);
}

TEST(DiskReader, AutomaticIsNeverRefused) {
  const ReadMethod method = DiskReader(DiskReaderOptions{}).method();
  EXPECT_EQ(method, make_uring_queue(1) ? ReadMethod::io_uring : ReadMethod::threads);
}

TEST(DiskReader, RefusesOptionsOutOfRange) {
  const auto with = [](int depth, uint64_t block_bytes) {
    DiskReaderOptions options;
    options.queue_depth = depth;
    options.block_bytes = block_bytes;
    return options;
  };
  for (const DiskReaderOptions& options : {with(0, kMiB), with(-1, kMiB), with(100'000, kMiB),
                                           with(8, 0), with(8, 1000), with(8, 4 * kGiB)}) {
    EXPECT_THROW(DiskReader{options}, Error);
  }
}

}  // namespace
}  // namespace klotski
