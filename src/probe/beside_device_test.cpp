#include "probe/beside_device.h"

#include <gtest/gtest.h>

#include <chrono>

#include "base/bytes.h"
#include "base/error.h"
#include "device/testing.h"
#include "kernels/testing.h"
#include "probe/link.h"
#include "probe/probe.h"
#include "probe/repeating.h"
#include "probe/testing.h"

namespace klotski {
namespace {

using testing::HostDevice;
using testing::large_layer;
using testing::TinyModel;

HostDevice& device() {
  static HostDevice made;
  return made;
}

// Memory of that device, which the program may not read.
class MemoryOfDevice : public HostMemory {
 public:
  MemoryOfDevice() : HostMemory(false) {}
  std::byte* take(uint64_t bytes) override { return device().allocate(bytes); }
  void give_back(std::byte* memory, uint64_t) override { device().release(memory); }
};

const Processor& device_ops() {
  static const CpuProcessor kMade(usable_cpus(), cpu::kernels(),
                                  std::make_unique<MemoryOfDevice>());
  return kMade;
}

ProbeLimits quick() {
  ProbeLimits limits;
  limits.weight_bytes = 0;
  limits.disk_bytes = kMiB;
  limits.most_rows = 8;
  limits.most_bytes = 64 * kMiB;
  limits.longest_call_seconds = 60;  // no size is left out on a busy machine
  return limits;
}

Profile measured(const TinyModel& tiny, const Processor* cpu) {
  const Checkpoint no_files =
      Checkpoint::described(tiny.checkpoint.folder(), tiny.checkpoint.tensors());
  return measure_profile({.model = tiny.description,
                          .checkpoint = no_files,
                          .ops = device_ops(),
                          .host = cpu_processor(),
                          .precision = Precision::bf16,
                          .limits = quick(),
                          .device = &device(),
                          .device_bytes = 64 * kMiB,
                          .cpu = cpu});
}

std::vector<double> sizes_of(const Curve& curve) {
  return {curve.sizes().begin(), curve.sizes().end()};
}

void expect_nothing_held() {
  EXPECT_EQ(device().allocated_bytes(), 0u);
  EXPECT_EQ(device().pinned_bytes(), 0u);
}

TEST(BesideDevice, WhatTheCpuTakes) {
  const auto start = std::chrono::steady_clock::now();
  const Profile profile = measured(TinyModel("mixtral"), &cpu_processor());
  const double all_calls = seconds_since(start);
  const MachineProfile& machine = profile.machine;
  ASSERT_TRUE(machine.has_device());
  EXPECT_EQ(machine.cpu().tier, kHostTier);
  EXPECT_EQ(machine.processors[1], (ProcessorProfile{.tier = kComputeTier, .name = "host memory"}));
  for (const LinkCurve& one : kLinkCurves) {
    EXPECT_EQ(sizes_of(machine.link().*one.curve),
              (std::vector<double>{4 * kKiB, 64 * kKiB, 256 * kKiB, kMiB, 4 * kMiB, 16 * kMiB}))
        << one.name;
  }
  for (const double ratio :
       {machine.link().rows_take_while_copying, machine.cpu().takes_while_copying,
        machine.link().takes_while_computing}) {
    EXPECT_GE(ratio, 1.0);
    EXPECT_LT(ratio, 1000.0);
  }
  ASSERT_EQ(profile.model.kinds.size(), 1u);
  const LayerProfile& kind = profile.model.kinds[0];
  EXPECT_EQ(sizes_of(kind.expert_on_cpu), (std::vector<double>{1, 2, 4, 8}));
  EXPECT_EQ(sizes_of(kind.attend_decode_on_cpu), sizes_of(kind.attend_decode));
  for (const Curve* curve : {&kind.expert_on_cpu, &kind.attend_decode_on_cpu}) {
    for (const double seconds : curve->seconds()) EXPECT_LT(seconds, all_calls);
  }
  expect_nothing_held();
}

TEST(BesideDevice, WithoutOperationsOfTheCpuNothing) {
  const Profile profile = measured(TinyModel("mixtral"), nullptr);
  EXPECT_FALSE(profile.machine.link().rows_down.empty());
  EXPECT_EQ(profile.machine.cpu().takes_while_copying, 1.0);
  EXPECT_EQ(profile.machine.link().takes_while_computing, 1.0);
  for (const LayerProfile& kind : profile.model.kinds) {
    EXPECT_FALSE(kind.expert.empty());
    EXPECT_TRUE(kind.expert_on_cpu.empty());
    EXPECT_TRUE(kind.attend_decode_on_cpu.empty());
  }
  expect_nothing_held();
}

// Memory of the device to copy to.
class There {
 public:
  explicit There(uint64_t bytes) : bytes_(device().allocate(bytes), static_cast<size_t>(bytes)) {}
  ~There() { device().release(bytes_.data()); }
  There(const There&) = delete;
  There& operator=(const There&) = delete;
  std::span<std::byte> bytes() const { return bytes_; }

 private:
  std::span<std::byte> bytes_;
};

// A profile that has one kind a layer, and no curves yet.
Profile kind_for_each_layer(const ModelDescription& model) {
  Profile profile;
  profile.machine.links.resize(1);
  profile.model.kinds.resize(model.layers.size());
  for (int i = 0; i < static_cast<int>(model.layer_count()); ++i) {
    profile.model.kind_of_layer.push_back(i);
  }
  return profile;
}

TEST(BesideDevice, OnlyLayersThatChooseHaveExpertsToCompute) {
  const TinyModel tiny("variants/qwen2_windows_dense");
  Profile profile = kind_for_each_layer(tiny.description);
  Tier tier("test", 64 * kMiB);
  const StoredTypes types = tiny.types();
  const ProbeLimits limits = quick();
  const There there(kMiB);
  measure_beside_device({tier, limits, cpu_processor(), Precision::bf16, types}, tiny.description,
                        device(), there.bytes(), profile);
  int dense = 0;
  for (size_t i = 0; i < profile.model.kinds.size(); ++i) {
    const bool routed = tiny.description.layers[i].feed_forward.routed;
    EXPECT_EQ(profile.model.kinds[i].expert_on_cpu.empty(), !routed) << i;
    EXPECT_FALSE(profile.model.kinds[i].attend_decode_on_cpu.empty()) << i;
    dense += routed ? 0 : 1;
  }
  EXPECT_GT(dense, 0);
  EXPECT_EQ(tier.used_bytes(), 0u);
}

TEST(BesideDevice, ManyRowsAreTheDevices) {
  const TinyModel tiny("mixtral");
  Profile profile = kind_for_each_layer(tiny.description);
  profile.model.kinds.resize(1);
  Tier tier("test", 64 * kMiB);
  const StoredTypes types = tiny.types();
  ProbeLimits limits = quick();
  limits.most_rows = 8192;
  const There there(kMiB);
  measure_beside_device({tier, limits, cpu_processor(), Precision::bf16, types}, tiny.description,
                        device(), there.bytes(), profile);
  EXPECT_EQ(profile.model.kinds[0].expert_on_cpu.sizes().back(), 1024);
}

// A large model's layer in a small memory, and none of the program's that may be pinned.
TEST(BesideDevice, StaysWithinItsMemory) {
  const ModelDescription model = large_layer();
  Profile profile = kind_for_each_layer(model);
  Tier tier("test", ProbeLimits::kLeastBytes);
  ProbeLimits limits;
  limits.longest_call_seconds = 0.02;
  HostDevice unpinnable({.bytes = kMiB, .pin_bytes = 0});
  std::byte* there = unpinnable.allocate(100 * kKiB + 1);
  measure_beside_device(
      {tier, limits, cpu_processor(), Precision::bf16, testing::all_of_type(DType::BF16)}, model,
      unpinnable, {there, 100 * kKiB + 1}, profile);
  EXPECT_FALSE(profile.model.kinds[0].expert_on_cpu.empty());
  EXPECT_FALSE(profile.model.kinds[0].attend_decode_on_cpu.empty());
  EXPECT_GT(unpinnable.bytes_to_device(), 0u);
  EXPECT_LE(tier.peak_bytes(), tier.limit_bytes());
  EXPECT_GT(tier.peak_bytes(), tier.limit_bytes() / 4);
  EXPECT_EQ(tier.used_bytes(), 0u);
}

// The lost copy may be the first, one that is timed alone, or one during an expert.
TEST(BesideDevice, ALostDeviceIsSaid) {
  const TinyModel tiny("mixtral");
  const StoredTypes types = tiny.types();
  const ProbeLimits limits = quick();
  for (const int copies : {0, 3, 10}) {  // 16 are made at least
    Profile profile = kind_for_each_layer(tiny.description);
    Tier tier("test", 128 * kMiB);
    const There there(32 * kMiB);  // a copy takes milliseconds
    device().fail_copy(copies);
    try {
      measure_beside_device({tier, limits, cpu_processor(), Precision::bf16, types},
                            tiny.description, device(), there.bytes(), profile);
      ADD_FAILURE() << copies;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::device_lost);
    }
    device().fail_copy(-1);
    EXPECT_EQ(tier.used_bytes(), 0u);
  }
  expect_nothing_held();
}

TEST(MeasureLink, UnpinsWhatItPinnedWhenTheDeviceIsLost) {
  Tier tier("test", 64 * kMiB);
  const There there(kMiB);
  device().fail_copy(10);
  EXPECT_THROW(measure_link(cpu_processor(), device(), tier, there.bytes()), Error);
  device().fail_copy(-1);
  EXPECT_EQ(device().pinned_bytes(), 0u);
  const LinkProfile link = measure_link(cpu_processor(), device(), tier, there.bytes());
  for (const LinkCurve& one : kLinkCurves) {
    EXPECT_EQ((link.*one.curve).sizes().back(), static_cast<double>(kMiB)) << one.name;
  }
}

}  // namespace
}  // namespace klotski
