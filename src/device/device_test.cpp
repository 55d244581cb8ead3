#include "device/device.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "base/testing.h"

namespace klotski {
namespace {

using Bytes = std::vector<std::byte>;

constexpr uint64_t kLarge = 64 * kMiB + 3;  // five buffers to copy through, the last nearly empty

Bytes random_bytes(uint64_t size, uint64_t seed) {
  std::mt19937_64 random(seed);
  Bytes bytes(size + sizeof(uint64_t));
  for (uint64_t i = 0; i < size; i += sizeof(uint64_t)) {
    const uint64_t value = random();
    std::memcpy(bytes.data() + i, &value, sizeof value);
  }
  bytes.resize(size);
  return bytes;
}

// Whole pages that nothing else lies in, begun with these bytes.
class Pages {
 public:
  explicit Pages(std::span<const std::byte> content)
      : memory_(static_cast<std::byte*>(
            ::operator new ((content.size() / kPage + 1) * kPage, std::align_val_t{kPage}))),
        bytes_(content.size()) {
    std::copy(content.begin(), content.end(), memory_.get());
  }
  std::span<std::byte> span() { return {memory_.get(), bytes_}; }

 private:
  static constexpr size_t kPage = 65536;  // the largest usual one
  struct Delete {
    void operator()(std::byte* memory) const {
      ::operator delete (memory, std::align_val_t{kPage});
    }
  };
  std::unique_ptr<std::byte, Delete> memory_;
  size_t bytes_;
};

bool equal(std::span<const std::byte> a, std::span<const std::byte> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

class DeviceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const DeviceList list = list_devices();
    if (list.devices.empty()) GTEST_SKIP() << list.why_none;
    device_ = open_device(0);
  }
  Device& device() { return *device_; }

  // Copies bytes to the device and back on a queue of their own.
  Bytes round_trip(std::span<const std::byte> sent, CopySize copies) {
    std::byte* memory = device().allocate(sent.size());
    Bytes received(sent.size(), std::byte{0xA5});
    const auto queue = device().new_queue(copies);
    queue->to_device(memory, sent.data(), sent.size());
    queue->to_host(received.data(), memory, received.size());
    queue->finish();
    device().release(memory);
    return received;
  }

 private:
  std::unique_ptr<Device> device_;
};

TEST_F(DeviceTest, SaysWhatItIs) {
  const DeviceInfo& info = device().info();
  EXPECT_EQ(info.index, 0);
  EXPECT_FALSE(info.name.empty());
  EXPECT_GE(10 * info.major + info.minor, 75);
  EXPECT_GT(info.multiprocessors, 0);
  EXPECT_GT(info.total_bytes, kGiB);
  EXPECT_GE(info.pci_address.size(), std::string("0000:01:00.0").size());
  EXPECT_FALSE(list_devices().driver.empty());
  EXPECT_LE(device().free_bytes(), info.total_bytes);
}

TEST_F(DeviceTest, RefusesNumbersThatAreNone) {
  const size_t count = list_devices().devices.size();
  const std::string message = refusal([&] { open_device(static_cast<int>(count)); });
  EXPECT_NE(message.find(std::to_string(count) + ", numbered from 0"), std::string::npos)
      << message;
  EXPECT_NE(refusal([] { open_device(-1); }), "");
}

TEST_F(DeviceTest, CopiesBothWays) {
  for (const uint64_t size : {uint64_t{0}, uint64_t{1}, uint64_t{17}, 16 * kMiB, kLarge}) {
    const Bytes sent = random_bytes(size, size + 1);
    for (const CopySize copies : {CopySize::large, CopySize::medium, CopySize::small}) {
      EXPECT_TRUE(round_trip(sent, copies) == sent) << size << " bytes, not pinned";
      Pages pinned(sent);
      Pages received(Bytes(size, std::byte{0xA5}));
      ASSERT_TRUE(device().pin(pinned.span()));
      ASSERT_TRUE(device().pin(received.span()));
      std::byte* memory = device().allocate(size);
      const auto queue = device().new_queue(copies);
      queue->to_device(memory, pinned.span().data(), size);
      queue->to_host(received.span().data(), memory, size);
      queue->finish();
      EXPECT_TRUE(equal(received.span(), sent)) << size << " bytes, pinned";
      device().unpin(pinned.span());
      device().unpin(received.span());
      device().release(memory);
    }
  }
}

// The two sides need not be equally far from a multiple of anything.
TEST_F(DeviceTest, SmallCopiesOfPinnedMemoryMayBeginAnywhere) {
  const Bytes sent = random_bytes(kMiB, 7);
  Pages pinned(sent);
  Pages received(Bytes(sent.size(), std::byte{0}));
  ASSERT_TRUE(device().pin(pinned.span()));
  ASSERT_TRUE(device().pin(received.span()));
  std::byte* memory = device().allocate(sent.size());
  const auto queue = device().new_queue(CopySize::small);
  std::mt19937_64 random(6);
  for (int turn = 0; turn < 200; ++turn) {
    const uint64_t bytes = random() % (sent.size() / 2);
    const uint64_t from = random() % (sent.size() - bytes);
    const uint64_t there = random() % 4 == 0 ? random() % (sent.size() - bytes) : from;
    const uint64_t back = random() % 4 == 0 ? random() % (sent.size() - bytes) : there;
    queue->to_device(memory + there, pinned.span().data() + from, bytes);
    queue->to_host(received.span().data() + back, memory + there, bytes);
    queue->finish();
    ASSERT_EQ(std::memcmp(received.span().data() + back, sent.data() + from, bytes), 0);
  }
  device().unpin(pinned.span());
  device().unpin(received.span());
  device().release(memory);
}

// Some a kernel can copy, some it cannot: half of the memory is pinned, some begin elsewhere.
TEST_F(DeviceTest, CopiesManyPiecesAtOnce) {
  constexpr uint64_t kPiece = 5000;  // bytes there and here, of which some are copied
  constexpr uint64_t kPieces = 300;
  const Bytes sent = random_bytes(kPieces * kPiece, 11);
  Pages from(sent);
  Pages back(Bytes(sent.size(), std::byte{0xA5}));
  const auto half = [](std::span<std::byte> all) { return all.first(all.size() / 2); };
  ASSERT_TRUE(device().pin(half(from.span())));
  ASSERT_TRUE(device().pin(half(back.span())));
  std::byte* memory = device().allocate(sent.size());
  std::mt19937_64 random(12);
  for (const CopySize copies : {CopySize::large, CopySize::medium, CopySize::small}) {
    std::fill(back.span().begin(), back.span().end(), std::byte{0xA5});
    Bytes expected(sent.size(), std::byte{0xA5});
    std::vector<CopyPiece> up;
    std::vector<CopyPiece> down;
    for (uint64_t i = 0; i < kPieces; ++i) {
      const uint64_t shift = random() % 4 == 0 ? random() % 32 : 0;
      const uint64_t begin = i * kPiece + random() % 32;
      const uint64_t bytes = random() % 8 == 0 ? 0 : random() % (kPiece - 64);
      up.push_back({memory + begin + shift, from.span().data() + begin, bytes});
      down.push_back({back.span().data() + begin, memory + begin + shift, bytes});
      std::copy_n(sent.data() + begin, bytes, expected.data() + begin);
    }
    const auto queue = device().new_queue(copies);
    queue->pieces_to_device(up);
    queue->pieces_to_host(down);
    queue->pieces_to_host({});
    queue->finish();
    EXPECT_TRUE(equal(back.span(), expected));
  }
  device().unpin(half(from.span()));
  device().unpin(half(back.span()));
  device().release(memory);
}

TEST_F(DeviceTest, CopiesPartsAtAnyAddress) {
  const Bytes sent = random_bytes(1 * kMiB, 3);
  Bytes received(sent.size());
  std::byte* memory = device().allocate(sent.size());
  const auto queue = device().new_queue(CopySize::large);
  queue->to_device(memory, sent.data(), sent.size());
  std::mt19937_64 random(5);
  for (int turn = 0; turn < 200; ++turn) {
    const uint64_t begin = random() % sent.size();
    const uint64_t bytes = random() % (sent.size() - begin);
    queue->to_host(received.data() + begin, memory + begin, bytes);
    queue->finish();
    ASSERT_EQ(std::memcmp(received.data() + begin, sent.data() + begin, bytes), 0);
  }
  device().release(memory);
}

TEST_F(DeviceTest, PacksRows) {
  constexpr uint64_t kStride = 1000;
  constexpr uint64_t kRows = 300;
  const Bytes sent = random_bytes(kRows * kStride, 8);
  Pages pages(sent);
  const std::span<std::byte> all = pages.span();
  const std::span<std::byte> half = all.first(all.size() / 2);
  for (const std::span<std::byte> pinned : {std::span<std::byte>(), half, all}) {
    ASSERT_TRUE(device().pin(pinned));
    for (const CopySize copies : {CopySize::large, CopySize::medium, CopySize::small}) {
      for (const uint64_t row_bytes : {uint64_t{0}, uint64_t{1}, uint64_t{96}, kStride}) {
        for (const uint64_t rows : {uint64_t{0}, uint64_t{1}, kRows}) {
          const uint64_t begin = kStride - row_bytes;  // the last row ends with the memory
          Bytes expected(kRows * kStride, std::byte{0xA5});
          for (uint64_t row = 0; row < rows; ++row) {
            std::copy_n(sent.data() + begin + row * kStride, row_bytes,
                        expected.data() + row * row_bytes);
          }
          Bytes received(expected.size(), std::byte{0xA5});
          std::byte* memory = device().allocate(received.size());
          const auto queue = device().new_queue(copies);
          queue->to_device(memory, received.data(), received.size());
          queue->rows_to_device(memory, all.data() + begin, row_bytes, rows, kStride);
          if (pinned.empty()) std::fill(all.begin(), all.end(), std::byte{0});
          queue->to_host(received.data(), memory, received.size());
          queue->finish();
          EXPECT_TRUE(received == expected)
              << rows << " rows of " << row_bytes << " bytes, " << pinned.size() << " pinned";
          std::copy(sent.begin(), sent.end(), all.begin());
          device().release(memory);
        }
      }
    }
    device().unpin(pinned);
  }
}

TEST_F(DeviceTest, MemoryThatIsNotPinnedIsFreeOnReturn) {
  const Bytes first = random_bytes(kLarge, 1);
  Bytes changed = first;
  Bytes received(kLarge);
  std::byte* memory = device().allocate(kLarge);
  const auto queue = device().new_queue(CopySize::large);
  queue->to_device(memory, changed.data(), kLarge);
  std::fill(changed.begin(), changed.end(), std::byte{0});
  queue->to_host(received.data(), memory, kLarge);
  queue->finish();
  EXPECT_TRUE(received == first);
  device().release(memory);
}

TEST_F(DeviceTest, QueuesWorkBesideEachOther) {
  std::vector<std::thread> threads;
  for (const bool pinned : {false, true}) {
    threads.emplace_back([this, pinned] {
      const Bytes expected = random_bytes(kLarge, pinned ? 11 : 12);
      Pages pages(expected);
      const std::span<std::byte> memory = pages.span();
      if (pinned) {
        EXPECT_TRUE(device().pin(memory));
      }
      std::byte* there = device().allocate(kLarge);
      const auto queue = device().new_queue(CopySize::large);
      for (int turn = 0; turn < 4; ++turn) {
        queue->to_device(there, memory.data(), kLarge);
        queue->finish();
        std::fill(memory.begin(), memory.end(), std::byte{0});
        queue->to_host(memory.data(), there, kLarge);
        queue->finish();
        EXPECT_TRUE(equal(memory, expected)) << (pinned ? "pinned" : "not pinned");
      }
      device().release(there);
      if (pinned) device().unpin(memory);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// The device waits by itself where it sees the count and the copied bytes, otherwise the thread
// does.
TEST_F(DeviceTest, CopiesWaitForACountOfTheProgram) {
  const Bytes before = random_bytes(100000, 1);
  const Bytes after = random_bytes(100000, 2);
  for (const int pinned : {0, 1, 2, 3}) {
    Pages words(Bytes(64));
    Pages page(before);
    if ((pinned & 1) != 0) {
      ASSERT_TRUE(device().pin(page.span()));
    }
    if ((pinned & 2) != 0) {
      ASSERT_TRUE(device().pin(words.span()));
    }
    auto* count = new (words.span().data()) std::atomic<uint32_t>(0xFFFFFFFFu);
    std::byte* memory = device().allocate(after.size());
    const auto queue = device().new_queue(CopySize::small);
    const auto begun = std::chrono::steady_clock::now();
    std::thread counts([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      std::copy(after.begin(), after.end(), page.span().data());
      *count += 3;  // goes round
    });
    queue->wait_for_count(*count, 2);
    queue->to_device(memory, page.span().data(), after.size());
    queue->publish();
    const auto took = std::chrono::steady_clock::now() - begun;
    EXPECT_NE(queue->published(), nullptr);
    EXPECT_EQ(took < std::chrono::milliseconds(15), pinned == 3);
    Bytes received(after.size());
    queue->to_host(received.data(), memory, received.size());
    queue->finish();
    counts.join();
    EXPECT_TRUE(received == after);
    device().release(memory);
    device().unpin(page.span());
    device().unpin(words.span());
  }
}

TEST_F(DeviceTest, PinsAndUnpins) {
  const Bytes expected = random_bytes(4 * kMiB, 9);
  Pages pages(expected);
  const std::span<std::byte> all = pages.span();
  EXPECT_TRUE(device().pin({}));
  EXPECT_TRUE(device().pin(all));
  EXPECT_TRUE(device().pin(all)) << "is so already";
  EXPECT_TRUE(device().pin(all.subspan(kMiB, kMiB))) << "a part of what is";
  EXPECT_TRUE(round_trip(all, CopySize::large) == expected);
  device().unpin(all.subspan(kMiB, kMiB));  // never pinned by itself: nothing happens
  EXPECT_TRUE(round_trip(all, CopySize::large) == expected);
  device().unpin(all);
  device().unpin(all);
  EXPECT_TRUE(round_trip(all, CopySize::large) == expected);
  EXPECT_TRUE(device().pin(all)) << "again";
  device().unpin(all);
}

// The driver refuses copies that begin in a pinned range and end outside of it.
TEST_F(DeviceTest, CopiesAcrossTheEdgeOfPinnedMemory) {
  const Bytes expected = random_bytes(8 * kMiB, 10);
  Pages pages(expected);
  const std::span<std::byte> half = pages.span().first(4 * kMiB);
  ASSERT_TRUE(device().pin(half));
  EXPECT_TRUE(round_trip(pages.span(), CopySize::large) == expected);
  device().unpin(half);
}

TEST_F(DeviceTest, TooMuchMemoryDoesNotFitAndNothingBreaks) {
  const uint64_t free = device().free_bytes();
  for (const uint64_t bytes : {device().info().total_bytes, UINT64_MAX}) {
    try {
      device().allocate(bytes);
      FAIL() << bytes << " bytes were allocated";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::does_not_fit) << error.what();
      EXPECT_NE(std::string(error.what()).find("are free"), std::string::npos) << error.what();
    }
  }
  const Bytes sent = random_bytes(kMiB, 2);
  EXPECT_TRUE(round_trip(sent, CopySize::large) == sent);
  EXPECT_GE(device().free_bytes() + 64 * kMiB, free);
}

TEST_F(DeviceTest, KnowsWhatIsItsOwn) {
  const uint64_t before = device().own_bytes();
  EXPECT_LT(before, 2 * kGiB);
  std::byte* memory = device().allocate(512 * kMiB);
  const uint64_t after = device().own_bytes();
  EXPECT_LT(after, before + 64 * kMiB) << "what is allocated is not counted";
  EXPECT_GT(after + 64 * kMiB, before);
  device().release(memory);
  EXPECT_EQ(device().allocate(0), nullptr);
  device().release(nullptr);
}

}  // namespace
}  // namespace klotski
