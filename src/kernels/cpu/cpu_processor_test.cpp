// Processors as objects: each is its own, however many there are.

#include "kernels/cpu/cpu_processor.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/testing.h"
#include "kernels/cpu/experts_testing.h"

namespace klotski {
namespace {

namespace fs = std::filesystem;

// Results of several operations, large enough that they are shared out to all threads.
class Workload {
 public:
  std::vector<float> results(const Processor& ops) const {
    Output norm(kRows, kIn);
    ops.rms_norm(norm.rows(), in(), scale_.view, 1e-5f);
    Output product(kRows, kOut);
    ops.matmul(product.rows(), norm.rows(), weight_.view, {}, Precision::bf16);
    Output expert(kRows, kIn);
    const ExpertProduct one = expert_.product(expert.rows(), in());
    ops.experts(std::span(&one, 1), Precision::f32);
    std::vector<float> all;
    for (const Output* output : {&norm, &product, &expert}) {
      all.insert(all.end(), output->values().begin(), output->values().end());
    }
    return all;
  }

 private:
  static constexpr int64_t kRows = 40;
  static constexpr int64_t kIn = 256;
  static constexpr int64_t kOut = 512;

  ConstRows in() const { return {in_.data(), kRows, kIn}; }

  const std::vector<float> in_ = random_floats(kRows * kIn, 1);
  const Weights scale_{random_floats(kIn, 2), DType::F32, {kIn}};
  const Weights weight_{random_floats(kOut * kIn, 3), DType::BF16, {kOut, kIn}};
  const Expert expert_{{kIn, kOut, kIn}, DType::BF16, DType::BF16, 4};
};

// Has every processor compute again and again on a thread of its own, all at one time.
void expect_same_together(std::span<const Processor* const> processors) {
  const Workload work;
  std::vector<std::vector<float>> alone;
  for (const Processor* processor : processors) alone.push_back(work.results(*processor));
  std::vector<std::thread> threads;
  std::vector<int> wrong(processors.size(), 0);
  for (size_t p = 0; p < processors.size(); ++p) {
    threads.emplace_back([&, p] {
      for (int round = 0; round < 20; ++round) {
        if (!same_bits(work.results(*processors[p]), alone[p])) ++wrong[p];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t p = 0; p < processors.size(); ++p) EXPECT_EQ(wrong[p], 0) << p;
}

TEST(CpuProcessor, TwoWithDifferentThreadsComputeAtTheSameTime) {
  const CpuProcessor two(2);
  const CpuProcessor three(3);
  const std::vector<const Processor*> both{&two, &three};
  expect_same_together(both);
  const Workload work;
  EXPECT_TRUE(same_bits(work.results(two), work.results(three)));
}

TEST(CpuProcessor, ComputesWhileTheReferenceDoes) {
  const CpuProcessor fast(2);
  const ReferenceProcessor plain;
  const std::vector<const Processor*> both{&fast, &plain};
  expect_same_together(both);
}

// A destroyed processor disturbs neither living ones nor one made in its place.
TEST(CpuProcessor, OutlivesAnother) {
  const CpuProcessor stays(2);
  const Workload work;
  const std::vector<float> expected = work.results(stays);
  for (int i = 0; i < 3; ++i) {
    auto goes = std::make_unique<CpuProcessor>(2);
    EXPECT_TRUE(same_bits(work.results(*goes), expected));
    goes.reset();
    EXPECT_TRUE(same_bits(work.results(stays), expected));
  }
}

// The system's numbers of the threads of this process.
std::set<std::string> thread_numbers() {
  std::set<std::string> numbers;
  for (const auto& entry : fs::directory_iterator("/proc/self/task")) {
    numbers.insert(entry.path().filename());
  }
  return numbers;
}

// The system may list a thread for a moment longer than its join takes.
bool become(const std::set<std::string>& numbers) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (thread_numbers() != numbers) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::yield();
  }
  return true;
}

TEST(CpuProcessor, TakesItsThreadsWithIt) {
  const Workload work;
  const std::set<std::string> before = thread_numbers();
  for (int i = 0; i < 30; ++i) {
    const CpuProcessor made(4);
    ASSERT_TRUE(become(before)) << "those of the last one, or some before they are needed";
    work.results(made);
    ASSERT_EQ(thread_numbers().size(), before.size() + 3);
  }
  EXPECT_TRUE(become(before));
}

TEST(CpuProcessor, HasItsOwnNumberOfThreads) {
  const CpuProcessor one(1);
  const CpuProcessor four(4);
  EXPECT_EQ(one.threads(), 1);
  EXPECT_EQ(four.threads(), 4);
  EXPECT_EQ(four.machine().pool.threads(), 4);
  EXPECT_EQ(ReferenceProcessor().threads(), 1);
  EXPECT_GT(four.scratch_bytes({.rows = 8}), one.scratch_bytes({.rows = 8}));
  EXPECT_NE(refusal([] { const CpuProcessor none(0); }).find("at least 1"), std::string::npos);
}

TEST(CpuProcessor, ComputesWithTheInstructionsItWasMadeFor) {
  EXPECT_EQ(CpuProcessor().name(), cpu_kernels().chosen);
  EXPECT_EQ(&CpuProcessor().kernels(), &cpu::kernels());
  for (const cpu::Kernels* kernels : every_kernels()) {
    const CpuProcessor made(1, *kernels);
    EXPECT_EQ(made.name(), kernels->name);
    EXPECT_EQ(&made.machine().kernels, kernels);
  }
  EXPECT_EQ(ReferenceProcessor().name(), "reference");
}

// Work that is no operation reaches every index once, whatever the processor.
TEST(CpuProcessor, SharesOutOtherWork) {
  const CpuProcessor fast(3);
  const ReferenceProcessor plain;
  for (const Processor* ops :
       {static_cast<const Processor*>(&fast), static_cast<const Processor*>(&plain)}) {
    std::vector<int> visits(1000, 0);
    ops->parallel_for(std::ssize(visits), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) ++visits[static_cast<size_t>(i)];
    });
    EXPECT_EQ(visits, std::vector<int>(visits.size(), 1));
    ops->parallel_for(0, [](int64_t, int64_t) { FAIL() << "there is nothing to do"; });
  }
}

}  // namespace
}  // namespace klotski
