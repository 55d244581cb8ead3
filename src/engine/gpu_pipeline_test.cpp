// The pipeline on a real device beside the plain loop: random strategies, limits and divisions of
// work, and a disk that fails. Skips where there is no device.

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/testing/device_runs.h"
#include "engine/testing/fault_hook.h"
#include "kernels/cpu/cpu_processor.h"
#include "kernels/cuda_processor.h"

namespace klotski {
namespace {

// The first device and the CPU beside it.
struct Gpu {
  std::unique_ptr<Device> device = open_device(0);
  uint64_t own_bytes = device->own_bytes();
  CpuProcessor cpu{2};
  std::unique_ptr<const Processor> ops = make_cuda_processor(*device);
};

// One for all tests, never destroyed: the driver may be gone before static objects are.
Target gpu_target() {
  if (list_devices().devices.empty()) return {.ops = reference_processor()};
  static Gpu& gpu = *new Gpu;
  return {.ops = *gpu.ops,
          .device = gpu.device.get(),
          .cpu = &gpu.cpu,
          .device_own_bytes = gpu.own_bytes,
          .ops_bytes = kCudaProductWorkspace};
}

// Largest difference of two rows of logits, relative to the largest of the expected ones.
float largest_error(const std::vector<float>& found, const std::vector<float>& expected) {
  float scale = 0;
  float error = 0;
  for (size_t k = 0; k < expected.size(); ++k) {
    scale = std::max(scale, std::abs(expected[k]));
    const float difference = std::abs(found.at(k) - expected[k]);
    error = std::isfinite(difference) ? std::max(error, difference) : INFINITY;
  }
  return error / scale;
}
float largest_error_of(const Logits& found, const Logits& expected) {
  float error = found.size() == expected.size() ? 0.0F : INFINITY;
  for (size_t pass = 0; pass < std::min(found.size(), expected.size()); ++pass) {
    error = std::max(error, largest_error(found[pass], expected[pass]));
  }
  return error;
}

class GpuPipeline : public RandomRuns {
 protected:
  // Sums of float32 in another order; a weight or a row of another time differs by all of it.
  static constexpr float kMostError = 1e-3F;

  GpuPipeline() : RandomRuns(gpu_target()) { precisions_ = {Precision::f32}; }
  void SetUp() override {
    if (target_.device == nullptr) GTEST_SKIP() << "no device here";
  }

  RunLimits in_roomy_memory(RunLimits limits) const {
    limits.ram_bytes = roomy_ram();
    limits.vram_bytes = target_.device->own_bytes() + kGiB;
    return limits;
  }

  // Where two experts' scores are as good as equal, sums in another order choose the other one: a
  // plain run on the device then does so too, and few texts are like that.
  void expect_near(const std::vector<Logits>& found, const Texts& texts) {
    const std::vector<Logits> expected = run_resident(plain_, texts, Precision::f32);
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      ++texts_;
      if (largest_error_of(found[i], expected[i]) < kMostError) continue;
      ++ties_;
      const Texts alone{{texts.tokens[i]}, {texts.prompt[i]}};
      ASSERT_LT(largest_error_of(found[i], run_plainly(alone)), kMostError) << "text " << i;
    }
    ASSERT_LE(ties_, 1 + texts_ / 100);
  }

  Logits run_plainly(const Texts& text) {
    const RunLimits limits =
        in_roomy_memory({.strategy = Strategy::simple, .precision = Precision::f32});
    PreparedModel prepared(test_.description, test_.checkpoint, target_,
                           plan(limits, text.workload()), options_);
    return run_pipeline(prepared.pipeline(), text, random_).front();
  }

  int texts_ = 0;
  int ties_ = 0;
};

TEST_P(GpuPipeline, EqualsTheResidentRunUnderRandomPlans) {
  for (int trial = 0; trial < trials(30); ++trial) {
    SCOPED_TRACE(trial);
    const Texts texts = random_texts(random_, 1 + random_() % 6, test_.description.vocabulary, 40);
    const RunLimits limits = in_roomy_memory(random_division(texts));
    ASSERT_NO_FATAL_FAILURE(expect_near(run_by_random_plan(texts, limits), texts));
  }
}

// A read that fails fails the pass, and the next one on the same device is right.
TEST_P(GpuPipeline, IsRightAgainAfterAReadFailed) {
  int failed = 0;
  for (int trial = 0; trial < trials(12); ++trial) {
    SCOPED_TRACE(trial);
    const Texts texts = random_texts(random_, 1 + random_() % 4, test_.description.vocabulary);
    const RunLimits limits = in_roomy_memory(random_division(texts));
    const auto bad = static_cast<int>(random_() % 40);
    FaultHook hook([&](int call, int64_t result) { return call >= bad ? -EIO : result; });
    options_.disk.hook = &hook;
    RunPlan chosen = plan(limits, texts.workload());
    take_slots_away(chosen);
    PreparedModel prepared(test_.description, test_.checkpoint, target_, chosen, options_);
    try {
      const std::vector<Logits> found = run_pipeline(prepared.pipeline(), texts, random_);
      ASSERT_NO_FATAL_FAILURE(expect_near(found, texts));
    } catch (const Error& error) {
      ++failed;
      EXPECT_NE(std::string(error.what()).find("safetensors"), std::string::npos) << error.what();
    }
    hook.switch_off();
    const std::vector<Logits> found = run_pipeline(prepared.pipeline(), texts, random_);
    ASSERT_NO_FATAL_FAILURE(expect_near(found, texts));
    options_.disk.hook = nullptr;
  }
  EXPECT_GT(failed, 0);
}

INSTANTIATE_TEST_SUITE_P(Families, GpuPipeline,
                         ::testing::Values("mixtral", "qwen2_moe", "gpt_oss", "deepseek_v3",
                                           "variants/qwen3_next", kCompact, kFp8, kFp8Latent, kInt4,
                                           kGptq, kAwq));

}  // namespace
}  // namespace klotski
