#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/testing.h"
#include "device/device.h"
#include "device/testing.h"

namespace klotski {
namespace {

using testing::HostDevice;
using Bytes = std::vector<std::byte>;

Bytes bytes_of(size_t count, int first) {
  Bytes bytes(count);
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(first + static_cast<int>(i));
  return bytes;
}

ErrorKind kind_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.kind();
  }
  ADD_FAILURE() << "nothing was thrown";
  return ErrorKind::internal;
}

TEST(HostDevice, CopiesInFinishAlone) {
  HostDevice device;
  std::byte* memory = device.allocate(100);
  const auto queue = device.new_queue(CopySize::large);
  const Bytes sent = bytes_of(100, 1);
  queue->to_device(memory, sent.data(), 100);
  EXPECT_EQ(memory[0], std::byte{0xFF}) << "not yet";
  EXPECT_EQ(device.bytes_to_device(), 0u);
  Bytes received(100);
  queue->to_host(received.data(), memory, 100);
  EXPECT_EQ(received, Bytes(100)) << "not yet";
  queue->finish();
  EXPECT_EQ(Bytes(memory, memory + 100), sent);
  EXPECT_EQ(received, sent) << "in order";
  queue->finish();  // nothing is left
  EXPECT_EQ(device.bytes_to_device(), 100u);
  EXPECT_EQ(device.bytes_to_host(), 100u);
  device.release(memory);
}

TEST(HostDevice, CopiesOfAQueueThatEndsAreLost) {
  HostDevice device;
  std::byte* memory = device.allocate(1);
  device.new_queue(CopySize::large)->to_device(memory, bytes_of(1, 5).data(), 1);
  EXPECT_EQ(*memory, std::byte{0xFF});
}

TEST(HostDevice, TakesMemoryThatIsNotPinnedAtOnce) {
  HostDevice device;
  std::byte* memory = device.allocate(2);
  Bytes pinned(1, std::byte{1});
  Bytes plain(1, std::byte{1});
  ASSERT_TRUE(device.pin(pinned));
  const auto queue = device.new_queue(CopySize::large);
  queue->to_device(memory, pinned.data(), 1);
  queue->to_device(memory + 1, plain.data(), 1);
  pinned[0] = plain[0] = std::byte{2};
  queue->finish();
  EXPECT_EQ(memory[0], std::byte{2}) << "whoever writes pinned memory too early must see it";
  EXPECT_EQ(memory[1], std::byte{1});
}

// Three rows of two bytes, five apart.
TEST(HostDevice, PacksRowsInFinishAlone) {
  for (const bool pinned : {false, true}) {
    HostDevice device;
    std::byte* memory = device.allocate(8);
    Bytes sent = bytes_of(12, 0);
    const Bytes packed = {std::byte{0}, std::byte{1},  std::byte{5},
                          std::byte{6}, std::byte{10}, std::byte{11}};
    if (pinned) {
      ASSERT_TRUE(device.pin(sent));
    }
    const auto queue = device.new_queue(CopySize::large);
    queue->rows_to_device(memory, sent.data(), 2, 3, 5);
    EXPECT_EQ(memory[0], std::byte{0xFF}) << "not yet";
    sent[5] = std::byte{77};
    queue->finish();
    Bytes expected = packed;
    if (pinned) expected[2] = std::byte{77};
    EXPECT_EQ(Bytes(memory, memory + 6), expected) << (pinned ? "pinned" : "not pinned");
    EXPECT_EQ(memory[6], std::byte{0xFF});
    EXPECT_EQ(device.bytes_to_device(), 6u);
  }
}

TEST(HostDevice, RowsAreOneCopy) {
  HostDevice device;
  std::byte* memory = device.allocate(5);
  const Bytes plain(20);
  const auto queue = device.new_queue(CopySize::large);
  queue->rows_to_device(memory, plain.data(), 0, 9, 1);
  queue->rows_to_device(memory, plain.data(), 9, 0, 9);
  device.fail_copy(1);
  queue->rows_to_device(memory, plain.data(), 1, 5, 4);
  EXPECT_EQ(kind_of([&] { queue->rows_to_device(memory, plain.data(), 1, 5, 4); }),
            ErrorKind::device_lost);
  device.fail_copy(-1);
  EXPECT_EQ(kind_of([&] { queue->rows_to_device(memory, plain.data(), 2, 3, 4); }),
            ErrorKind::internal)
      << "more than was allocated";
  EXPECT_EQ(kind_of([&] { queue->rows_to_device(memory, plain.data(), 2, 2, 1); }),
            ErrorKind::internal)
      << "rows overlap";
}

TEST(HostDevice, HasSoManyBytes) {
  HostDevice device({.bytes = 1000, .own_bytes = 100});
  EXPECT_EQ(device.info().total_bytes, 1000u);
  EXPECT_EQ(device.own_bytes(), 100u);
  std::byte* most = device.allocate(900);
  EXPECT_EQ(device.free_bytes(), 0u);
  EXPECT_EQ(kind_of([&] { device.allocate(1); }), ErrorKind::does_not_fit);
  device.release(most);
  EXPECT_EQ(device.allocated_bytes(), 0u);
  EXPECT_NE(refusal([&] { device.allocate(901); }).find("900 B"), std::string::npos);
  EXPECT_EQ(kind_of([&] { device.allocate(UINT64_MAX); }), ErrorKind::does_not_fit);
  EXPECT_EQ(device.allocate(0), nullptr);
  device.release(nullptr);
  device.release(device.allocate(900));
}

TEST(HostDevice, PinsSoManyBytes) {
  HostDevice device({.pin_bytes = 100});
  Bytes memory(200);
  const std::span<std::byte> all(memory);
  EXPECT_TRUE(device.pin(all.first(60)));
  EXPECT_TRUE(device.pin(all.first(60))) << "is so already";
  EXPECT_FALSE(device.pin(all.subspan(60, 41)));
  EXPECT_TRUE(device.pin(all.subspan(60, 40)));
  EXPECT_TRUE(device.pin({}));
  EXPECT_EQ(device.pinned_bytes(), 100u);
  device.unpin(all.first(60));
  EXPECT_EQ(device.pinned_bytes(), 40u);
  EXPECT_TRUE(device.pin(all.subspan(100, 60)));
}

TEST(HostDevice, RefusesCopiesBesideItsMemory) {
  HostDevice device;
  std::byte* memory = device.allocate(10);
  Bytes plain(20);
  const auto queue = device.new_queue(CopySize::large);
  EXPECT_EQ(kind_of([&] { queue->to_device(memory, plain.data(), 11); }), ErrorKind::internal);
  EXPECT_EQ(kind_of([&] { queue->to_device(plain.data(), memory, 1); }), ErrorKind::internal);
  EXPECT_EQ(kind_of([&] { queue->to_host(plain.data(), memory + 5, 6); }), ErrorKind::internal);
  const auto other = device.new_queue(CopySize::large);
  other->to_device(memory, plain.data(), 10);
  device.release(memory);
  EXPECT_EQ(kind_of([&] { other->finish(); }), ErrorKind::internal) << "released too early";
}

TEST(HostDevice, FailsAtTheCopyAskedFor) {
  HostDevice device;
  std::byte* memory = device.allocate(10);
  Bytes plain(10);
  const auto queue = device.new_queue(CopySize::large);
  device.fail_copy(2);
  queue->to_device(memory, plain.data(), 10);
  queue->to_host(plain.data(), memory, 10);
  EXPECT_EQ(kind_of([&] { queue->to_device(memory, plain.data(), 10); }), ErrorKind::device_lost);
  EXPECT_EQ(kind_of([&] { queue->finish(); }), ErrorKind::device_lost);
  EXPECT_EQ(kind_of([&] { queue->to_host(plain.data(), memory, 1); }), ErrorKind::device_lost);
  EXPECT_EQ(kind_of([&] { device.allocate(1); }), ErrorKind::device_lost);
  EXPECT_EQ(kind_of([&] { (void)device.pin(plain); }), ErrorKind::device_lost);
  EXPECT_EQ(kind_of([&] { device.new_queue(CopySize::large); }), ErrorKind::device_lost);
  device.release(memory);  // cleaning up still works
  device.fail_copy(-1);
  device.release(device.allocate(1));
}

TEST(HostDevice, ServesThreads) {
  HostDevice device;
  std::vector<std::thread> threads;
  for (int number = 0; number < 4; ++number) {
    threads.emplace_back([&device, number] {
      const auto queue = device.new_queue(CopySize::large);
      for (int turn = 0; turn < 200; ++turn) {
        std::byte* memory = device.allocate(50);
        const Bytes sent = bytes_of(50, number + turn);
        Bytes received(50);
        queue->to_device(memory, sent.data(), 50);
        queue->to_host(received.data(), memory, 50);
        queue->finish();
        EXPECT_EQ(received, sent);
        device.release(memory);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(device.allocated_bytes(), 0u);
  EXPECT_EQ(device.bytes_to_host(), 4u * 200 * 50);
}

TEST(HostDevice, CopiesWaitForACountAndArePublished) {
  HostDevice device;
  const auto queue = device.new_queue(CopySize::small);
  std::byte* memory = device.allocate(50);
  Bytes sent = bytes_of(50, 1);
  const Bytes then = bytes_of(50, 2);
  std::atomic<uint32_t> count{0xFFFFFFFEu};
  std::thread counts([&] {
    sent = then;
    count += 3;
  });
  queue->wait_for_count(count, 1);
  counts.join();
  queue->to_device(memory, sent.data(), 50);
  queue->publish();
  EXPECT_EQ(memory[0], std::byte{0xFF}) << "not yet";
  queue->published();
  EXPECT_TRUE(std::equal(then.begin(), then.end(), memory));
  EXPECT_FALSE(has_come_to(count, 2));
  device.release(memory);
}

// Holds with CUDA and without, with a device and without one.
TEST(Devices, AreThereOrItIsSaidWhyNot) {
  const DeviceList list = list_devices();
  EXPECT_EQ(list.devices.empty(), !list.why_none.empty());
  const auto count = static_cast<int>(list.devices.size());
  EXPECT_EQ(kind_of([&] { open_device(count); }), ErrorKind::device_unavailable);
  EXPECT_EQ(kind_of([] { open_device(-1); }), ErrorKind::device_unavailable);
  const std::string message = refusal([&] { open_device(count); });
  EXPECT_NE(message.find("device " + std::to_string(count) + ": "), std::string::npos) << message;
  if (count == 0) {
    EXPECT_NE(message.find(list.why_none), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace klotski
