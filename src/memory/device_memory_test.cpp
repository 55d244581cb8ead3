// A device's memory and the program's memory that it spills to, on a device that any machine has.

#include "memory/device_memory.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "base/testing.h"
#include "device/testing.h"
#include "memory/device_spill.h"
#include "memory/pinning.h"

namespace klotski {
namespace {

using testing::HostDevice;

TEST(DeviceMemory, PiecesLieApartWithinOneAllocation) {
  HostDevice device({.bytes = 64 * kMiB});
  Tier tier("VRAM", 32 * kMiB);
  {
    DeviceMemory memory(device, tier, kMiB);
    const uint64_t allocated = device.allocated_bytes();
    const std::span<std::byte> a = memory.take("a", 100);
    const std::span<std::byte> b = memory.take("b", 5000);
    EXPECT_EQ(a.size(), 100u);
    EXPECT_GE(b.data(), a.data() + a.size());
    EXPECT_EQ((b.data() - a.data()) % static_cast<int64_t>(DeviceMemory::kAlignment), 0);
    EXPECT_EQ(device.allocated_bytes(), allocated);
    EXPECT_EQ(tier.used_bytes(), 5100u);
    const std::string message = refusal([&] { memory.take("c", 2 * kMiB); });
    EXPECT_NE(message.find("VRAM"), std::string::npos) << message;
    EXPECT_EQ(memory.take("c", kMiB - 3 * DeviceMemory::kAlignment).size(),
              kMiB - 3 * DeviceMemory::kAlignment)
        << "a refusal takes nothing";
  }
  EXPECT_EQ(device.allocated_bytes(), 0u);
  EXPECT_EQ(tier.used_bytes(), 0u);
}

TEST(DeviceMemory, GivesOutItsLastByte) {
  HostDevice device({.bytes = 64 * kMiB});
  Tier tier("VRAM", 32 * kMiB);
  DeviceMemory memory(device, tier, kMiB);
  const uint64_t all = device.allocated_bytes();
  EXPECT_THROW(memory.take("one byte too many", all + 1), Error);
  EXPECT_EQ(memory.take("all", all).size(), all);
  EXPECT_THROW(memory.take("a byte more", 1), Error);
}

TEST(DeviceMemory, WhatTheDeviceRefusesIsRefused) {
  HostDevice device({.bytes = kMiB});
  Tier tier("VRAM", kGiB);
  EXPECT_THROW(DeviceMemory(device, tier, 2 * kMiB), Error);
}

TEST(Pinning, PinsPieceByPieceAsFarAsTheSystemAllows) {
  HostDevice device({.pin_bytes = 3 * kMiB});
  std::vector<std::byte> memory(5 * kMiB);
  std::vector<std::span<std::byte>> pieces;
  for (size_t i = 0; i < 5; ++i) pieces.push_back(std::span(memory).subspan(i * kMiB, kMiB));
  {
    Pinning pinning(device, pieces);
    pinning.wait();
    EXPECT_EQ(pinning.total_bytes(), 5 * kMiB);
    EXPECT_EQ(pinning.pinned_bytes(), 3 * kMiB);
    EXPECT_TRUE(pinning.refused());
    EXPECT_EQ(device.pinned_bytes(), 3 * kMiB);
  }
  EXPECT_EQ(device.pinned_bytes(), 0u);
}

TEST(Pinning, EndsInTheMiddleWhereItIsNotWantedAnyMore) {
  HostDevice device;
  std::vector<std::byte> memory(64 * kKiB);
  for (int round = 0; round < 50; ++round) {
    std::vector<std::span<std::byte>> pieces;
    for (size_t i = 0; i < 16; ++i) {
      pieces.push_back(std::span(memory).subspan(i * 4 * kKiB, 4 * kKiB));
    }
    const Pinning pinning(device, std::move(pieces));
  }
  EXPECT_EQ(device.pinned_bytes(), 0u);
}

TEST(DeviceSpill, BytesComeBackAsTheyWent) {
  HostDevice device({.bytes = 8 * kMiB});
  Tier tier("RAM", 8 * kMiB);
  DeviceSpill spill(device, tier, 2 * kMiB);
  std::byte* there = device.allocate(kMiB);
  std::vector<std::byte> expected(kMiB);
  for (size_t i = 0; i < expected.size(); ++i) expected[i] = static_cast<std::byte>(i * 7);
  std::memcpy(there, expected.data(), expected.size());
  constexpr uint64_t kFirst = 100;  // bytes; two pieces that are not neighbours in the store
  const SpillWrite writes[] = {{kMiB, {there, kFirst}}, {0, {there + kFirst, kMiB - kFirst}}};
  spill.write(writes);
  std::memset(there, 0, kMiB);
  const SpillRead reads[] = {{0, {there + kFirst, kMiB - kFirst}}, {kMiB, {there, kFirst}}};
  spill.read(reads);
  EXPECT_EQ(std::memcmp(there, expected.data(), expected.size()), 0);
  EXPECT_EQ(device.bytes_to_host(), kMiB);
  EXPECT_EQ(device.bytes_to_device(), kMiB);
  device.release(there);
}

}  // namespace
}  // namespace klotski
