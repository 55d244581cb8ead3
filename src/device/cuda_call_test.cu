#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "base/testing.h"
#include "device/cuda_call_cuda.h"
#include "device/device.h"

namespace klotski::cuda {
namespace {

ErrorKind kind_of(cudaError_t result) {
  try {
    check_cuda(result, "a call");
  } catch (const Error& error) {
    return error.kind();
  }
  ADD_FAILURE() << cudaGetErrorName(result) << " was not thrown";
  return ErrorKind::usage;
}

TEST(CudaCall, ErrorsHaveTheirKinds) {
  EXPECT_NO_THROW(check_cuda(cudaSuccess, "a call"));
  EXPECT_EQ(kind_of(cudaErrorMemoryAllocation), ErrorKind::does_not_fit);
  EXPECT_EQ(kind_of(cudaErrorInvalidValue), ErrorKind::internal);
  EXPECT_EQ(kind_of(cudaErrorInvalidConfiguration), ErrorKind::internal);
  for (const cudaError_t lost :
       {cudaErrorIllegalAddress, cudaErrorLaunchFailure, cudaErrorECCUncorrectable, cudaErrorAssert,
        cudaErrorMisalignedAddress, cudaErrorHardwareStackError, cudaErrorIllegalInstruction,
        cudaErrorInvalidPc, cudaErrorContextIsDestroyed, cudaErrorUnknown}) {
    EXPECT_EQ(kind_of(lost), ErrorKind::device_lost) << cudaGetErrorName(lost);
    EXPECT_TRUE(is_lost(lost));
  }
  for (const cudaError_t absent : {cudaErrorNoDevice, cudaErrorInsufficientDriver,
                                   cudaErrorDevicesUnavailable, cudaErrorNoKernelImageForDevice}) {
    EXPECT_EQ(kind_of(absent), ErrorKind::device_unavailable) << cudaGetErrorName(absent);
    EXPECT_FALSE(is_lost(absent));
  }
}

TEST(CudaCall, MessagesNameTheCallAndTheError) {
  const std::string message = refusal([] { check_cuda(cudaErrorIllegalAddress, "some call"); });
  EXPECT_EQ(message.find("some call: cudaErrorIllegalAddress ("), 0u) << message;
  EXPECT_NE(message.find("start the program again"), std::string::npos) << message;
}

TEST(CudaCall, OneResultIsReplaced) {
  fail_cuda_call(2, cudaErrorInvalidValue);
  EXPECT_EQ(cuda_result(cudaSuccess), cudaSuccess);
  EXPECT_NO_THROW(check_cuda(cudaSuccess, "a call"));
  EXPECT_THROW(check_cuda(cudaSuccess, "a call"), Error);
  EXPECT_NO_THROW(check_cuda(cudaSuccess, "a call"));
  fail_cuda_call(0, cudaErrorInvalidValue);
  fail_cuda_call(-1, cudaSuccess);
  EXPECT_NO_THROW(check_cuda(cudaSuccess, "a call"));
}

TEST(CudaCall, OneResultOfManyThreadsIsReplaced) {
  fail_cuda_call(1000, cudaErrorInvalidValue);
  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&failures] {
      for (int call = 0; call < 1000; ++call) failures += cuda_result(cudaSuccess) != cudaSuccess;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 1);
}

// The whole life of a copy through memory that is not pinned.
void copy_there_and_back() {
  const std::unique_ptr<Device> device = open_device(0);
  const std::vector<std::byte> sent(kMiB, std::byte{7});
  std::vector<std::byte> received(kMiB);
  const std::unique_ptr<std::byte, std::function<void(std::byte*)>> memory(
      device->allocate(kMiB), [&device](std::byte* taken) { device->release(taken); });
  const std::unique_ptr<CopyQueue> queue = device->new_queue(CopySize::large);
  queue->to_device(memory.get(), sent.data(), kMiB);
  queue->to_host(received.data(), memory.get(), kMiB);
  queue->finish();
  EXPECT_TRUE(received == sent);
}

bool has_device() { return !list_devices().devices.empty(); }

TEST(CudaFaults, EachCallMayFailAndTheDeviceStillWorks) {
  if (!has_device()) GTEST_SKIP() << list_devices().why_none;
  constexpr int kMostCalls = 200;
  for (const cudaError_t error : {cudaErrorMemoryAllocation, cudaErrorIllegalAddress}) {
    int failed = 0;
    for (;; ++failed) {
      ASSERT_LT(failed, kMostCalls);
      fail_cuda_call(failed, error);
      const std::string message = refusal(copy_there_and_back);
      fail_cuda_call(-1, cudaSuccess);
      if (message.empty()) break;
      EXPECT_NE(message.find(cudaGetErrorName(error)), std::string::npos) << message;
      EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
    }
    EXPECT_GT(failed, 10) << "calls that can fail";
    copy_there_and_back();
  }
}

TEST(CudaFaults, PinningMayBeRefused) {
  if (!has_device()) GTEST_SKIP() << list_devices().why_none;
  const std::unique_ptr<Device> device = open_device(0);
  std::vector<std::byte> memory(kMiB);
  fail_cuda_call(1, cudaErrorMemoryAllocation);  // after cudaSetDevice
  EXPECT_FALSE(device->pin(memory));
  fail_cuda_call(1, cudaErrorIllegalAddress);
  EXPECT_THROW((void)device->pin(memory), Error);
  fail_cuda_call(-1, cudaSuccess);
  cudaHostUnregister(memory.data());  // registered in truth: a test replaced the result
}

__global__ void write_to(int* nowhere) { *nowhere = 1; }

// Ends the program with the exit code that follows a kernel's write outside of any memory.
[[noreturn]] void break_the_device() {
  const std::unique_ptr<Device> device = open_device(0);
  int exit = 0;
  try {
    write_to<<<1, 1>>>(nullptr);
    check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  } catch (const Error&) {
    try {
      device->allocate(kMiB);
    } catch (const Error& later) {
      exit = exit_code(later.kind());
    }
  }
  std::_Exit(exit);
}

TEST(CudaFaultsDeathTest, ABrokenDeviceStaysBroken) {
  if (!has_device()) GTEST_SKIP() << list_devices().why_none;
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";  // a process of its own, not a fork
  EXPECT_EXIT(break_the_device(), ::testing::ExitedWithCode(6), "");
}

}  // namespace
}  // namespace klotski::cuda
