#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <new>
#include <random>
#include <thread>
#include <vector>

#include "base/error.h"
#include "kernels/cuda/testing.h"

namespace klotski {
namespace {

using GpuMemory = GpuTest;

std::vector<uint8_t> pattern(size_t bytes, unsigned seed) {
  std::vector<uint8_t> values(bytes);
  uint32_t state = seed * 2654435761u + 1;
  for (uint8_t& value : values) {
    state = state * 1664525u + 1013904223u;
    value = static_cast<uint8_t>(state >> 24);
  }
  return values;
}

TEST_F(GpuMemory, BytesComeBackAsTheyWent) {
  for (const size_t bytes : {0u, 1u, 3u, 15u, 16u, 17u, (1u << 20) + 3, 20u << 20}) {
    const DeviceArray<uint8_t> array(bytes + 40);
    for (const size_t offset : {0u, 1u, 7u, 16u, 31u}) {
      auto* place = reinterpret_cast<std::byte*>(array.data() + offset);
      std::vector<uint8_t> source = pattern(bytes, static_cast<unsigned>(bytes + offset));
      const std::vector<uint8_t> expected = source;
      ops().memory.upload(place, source.data(), bytes);
      std::fill(source.begin(), source.end(), uint8_t{0});  // free on return
      std::vector<uint8_t> found(bytes + 2, uint8_t{7});
      ops().memory.download(found.data() + 1, place, bytes);
      EXPECT_TRUE(std::equal(expected.begin(), expected.end(), found.begin() + 1))
          << bytes << " bytes at " << offset;
      EXPECT_EQ(found.front(), 7);
      EXPECT_EQ(found.back(), 7);
    }
  }
}

TEST_F(GpuMemory, AnUploadTouchesItsOwnBytesOnly) {
  const std::vector<uint8_t> before = pattern(4096, 1);
  const std::vector<uint8_t> changed(100, uint8_t{0});
  for (size_t offset = 0; offset < 40; ++offset) {
    const DeviceArray<uint8_t> array{std::span<const uint8_t>(before)};
    ops().memory.upload(reinterpret_cast<std::byte*>(array.data() + offset), changed.data(),
                        changed.size() - offset);
    std::vector<uint8_t> expected = before;
    std::fill_n(expected.begin() + static_cast<ptrdiff_t>(offset), changed.size() - offset,
                uint8_t{0});
    EXPECT_EQ(array.download(), expected);
  }
}

TEST_F(GpuMemory, ManySmallUploadsKeepTheirOrder) {
  constexpr size_t kUploads = 3000;  // more than the staging memory holds at once
  const DeviceArray<uint32_t> last(1);
  const DeviceArray<uint32_t> all(kUploads * 1024);
  for (uint32_t i = 0; i < kUploads; ++i) {
    const std::vector<uint32_t> values(1024, i);
    ops().memory.upload(reinterpret_cast<std::byte*>(last.data()), &i, sizeof(i));
    ops().memory.upload(reinterpret_cast<std::byte*>(all.data() + i * 1024), values.data(), 4096);
  }
  EXPECT_EQ(last.download().front(), kUploads - 1);
  const std::vector<uint32_t> found = all.download();
  for (size_t i = 0; i < found.size(); ++i) ASSERT_EQ(found[i], i / 1024);
}

TEST_F(GpuMemory, PiecesDoNotOverlap) {
  struct Piece {
    std::byte* memory;
    std::vector<uint8_t> bytes;
  };
  std::mt19937 random(5);
  std::vector<Piece> pieces;
  const auto give_back_one = [&] {
    std::swap(pieces[random() % pieces.size()], pieces.back());
    std::vector<uint8_t> found(pieces.back().bytes.size());
    ops().memory.download(found.data(), pieces.back().memory, found.size());
    EXPECT_EQ(found, pieces.back().bytes);
    ops().memory.give_back(pieces.back().memory, found.size());
    pieces.pop_back();
  };
  for (unsigned step = 0; step < 400; ++step) {
    if (random() % 5 < 3 || pieces.empty()) {
      const size_t bytes = random() % 3 == 0 ? random() % 300000 : random() % 3000;
      pieces.push_back({ops().memory.take(bytes), pattern(bytes, step)});
      EXPECT_EQ(reinterpret_cast<uintptr_t>(pieces.back().memory) % 256, 0u);
      ops().memory.upload(pieces.back().memory, pieces.back().bytes.data(), bytes);
    } else {
      give_back_one();
    }
  }
  while (!pieces.empty()) give_back_one();
}

TEST_F(GpuMemory, AllOfItCanBeTakenAgain) {
  const uint64_t most = kTestArenaBytes - kCudaProductWorkspace;
  ops().memory.give_back(ops().memory.take(most), most);
  try {
    ops().memory.take(most + 256);
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::does_not_fit);
  }
  ops().memory.finish();
}

TEST_F(GpuMemory, DownloadsThatBeginEarlyAreThereAtTheirMark) {
  constexpr size_t kRounds = ProcessorMemory::kMostLandings;
  std::vector<std::vector<uint8_t>> expected;
  std::vector<const std::byte*> landed;
  StreamMark mark;
  for (size_t i = 0; i < 3 * kRounds; ++i) {
    const size_t bytes = i % 7 == 0 ? ProcessorMemory::kMostLanding : 1 + i * 37;
    const DeviceArray<uint8_t> array(ProcessorMemory::kMostLanding + 16);
    auto* from = reinterpret_cast<std::byte*>(array.data()) + i % 16;
    expected.push_back(pattern(bytes, static_cast<unsigned>(i)));
    ops().memory.upload(from, expected.back().data(), bytes);
    landed.push_back(ops().memory.begin_download(from, bytes));
    mark = ops().memory.mark();
    // Later ones write elsewhere.
    if (i + 1 < kRounds || (i + 1) % 5 != 0) continue;
    ops().memory.finish_to(mark);
    for (size_t k = i + 1 - kRounds; k <= i; ++k) {
      EXPECT_EQ(std::memcmp(landed[k], expected[k].data(), expected[k].size()), 0) << i << " " << k;
    }
  }
  const DeviceArray<uint8_t> large(ProcessorMemory::kMostLanding + 1);
  EXPECT_THROW(ops().memory.begin_download(reinterpret_cast<const std::byte*>(large.data()),
                                           ProcessorMemory::kMostLanding + 1),
               Error);
}

// Copies that a queue makes after a mark find the results of operations before it.
TEST_F(GpuMemory, CopiesWaitForTheirMark) {
  constexpr size_t kFloats = 1 << 18;
  const std::unique_ptr<Device> device = open_device(0);
  std::vector<float> found(kFloats + 1024);
  ASSERT_TRUE(device->pin(std::as_writable_bytes(std::span(found))));
  const auto queue = device->new_queue(CopySize::small);
  const std::vector<float> ones(kFloats, 1.0f);
  const DeviceArray<float> one{std::span<const float>(ones)};
  const Rows added{one.data(), 1, kFloats};
  for (int round = 0; round < 20; ++round) {
    const DeviceArray<float> sum{std::span<const float>(ones)};
    for (int i = 0; i < 50; ++i) ops().add({sum.data(), 1, kFloats}, added);
    ops().memory.let_copies_wait(*queue, ops().memory.mark());
    queue->to_host(reinterpret_cast<std::byte*>(found.data()),
                   reinterpret_cast<const std::byte*>(sum.data()), kFloats * sizeof(float));
    queue->finish();
    for (size_t i = 0; i < kFloats; i += 997) ASSERT_EQ(found[i], 51.0f) << round;
  }
  device->unpin(std::as_writable_bytes(std::span(found)));
}

TEST_F(GpuMemory, MoreCanBeLent) {
  const DeviceArray<float> lent(1 << 16);
  auto* begin = reinterpret_cast<std::byte*>(lent.data());
  const uint64_t bytes = (1 << 16) * sizeof(float);
  ops().memory.lend({begin, bytes});
  const std::vector<float> values = random_floats(1000, 1);
  {
    const DeviceArray<float> array(values);
    const auto* memory = reinterpret_cast<const std::byte*>(array.data());
    EXPECT_TRUE(memory >= begin && memory < begin + bytes);
    EXPECT_EQ(array.download(), values);
    EXPECT_THROW(ops().memory.lend({}), Error);
  }
  ops().memory.lend({});
}

TEST_F(GpuMemory, IsTheOperationsOwn) {
  EXPECT_FALSE(ops().memory.readable);
  const std::vector<float> values = random_floats(64, 1);
  const Weights weights(values, DType::BF16, {8, 8});
  std::vector<std::byte> bytes = weights.bytes;
  EXPECT_EQ(ops().arrange(bytes.data(), DType::BF16, {8, 8}, Precision::bf16), ElementOrder::rows);
  EXPECT_EQ(bytes, weights.bytes);
}

// The order of calls alone, without the program: a copy that waits for a count, a sum that waits
// for the copy.
TEST_F(GpuMemory, OperationsWaitForPublishedCopies) {
  constexpr size_t kFloats = 1000;
  alignas(4096) static std::byte page[8192];
  const std::unique_ptr<Device> device = open_device(0);
  ASSERT_TRUE(device->pin(page));
  auto* count = new (page) std::atomic<uint32_t>(0);
  auto* floats = reinterpret_cast<float*>(page + 4096);
  std::fill_n(floats, kFloats, -1.0f);
  const auto queue = device->new_queue(CopySize::small);
  for (uint32_t round = 1; round <= 40; ++round) {  // more rounds than there are marks
    const DeviceArray<float> copied(kFloats);
    const std::vector<float> ones(kFloats, 1.0f);
    const DeviceArray<float> sum{std::span<const float>(ones)};
    ops().memory.finish();
    // The count is raised by a thread that asks the device for nothing: a call that the device has
    // to make ready first may wait for all operations under way.
    std::thread counts([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      for (size_t i = 0; i < kFloats; ++i) floats[i] = static_cast<float>(i + round);
      ++*count;
    });
    queue->wait_for_count(*count, round);
    queue->to_device(reinterpret_cast<std::byte*>(copied.data()), page + 4096,
                     kFloats * sizeof(float));
    queue->publish();
    ops().memory.wait_for_copies(*queue);
    ops().add({sum.data(), 1, kFloats}, {copied.data(), 1, kFloats});
    const StreamMark mark = ops().memory.mark();
    ops().memory.finish_to(mark);
    counts.join();
    const std::vector<float> found = sum.download();
    for (size_t i = 0; i < kFloats; ++i) ASSERT_EQ(found[i], static_cast<float>(i + round + 1));
    queue->finish();
  }
  device->unpin(page);
}

}  // namespace
}  // namespace klotski
