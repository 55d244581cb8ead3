#include <fmt/format.h>

#include <atomic>
#include <cstddef>
#include <string>

#include "base/bytes.h"
#include "base/error.h"
#include "device/cuda_call_cuda.h"

namespace klotski::cuda {

namespace {

std::atomic<int> calls_left{-1};  // calls before the one that is replaced; negative: none
std::atomic<cudaError_t> replacement{cudaSuccess};

constexpr int kNotKnown = -1;
thread_local int current_device = kNotKnown;

ErrorKind kind_of(cudaError_t error) {
  if (is_lost(error)) return ErrorKind::device_lost;
  switch (error) {
    case cudaErrorMemoryAllocation:
      return ErrorKind::does_not_fit;
    case cudaErrorInitializationError:
    case cudaErrorStubLibrary:
    case cudaErrorInsufficientDriver:
    case cudaErrorCallRequiresNewerDriver:
    case cudaErrorDevicesUnavailable:
    case cudaErrorNoDevice:
    case cudaErrorInvalidDevice:
    case cudaErrorDeviceNotLicensed:
    case cudaErrorSoftwareValidityNotEstablished:
    case cudaErrorStartupFailure:
    case cudaErrorDeviceUninitialized:
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorUnsupportedPtxVersion:
    case cudaErrorJitCompilerNotFound:
    case cudaErrorJitCompilationDisabled:
    case cudaErrorOperatingSystem:
    case cudaErrorNotPermitted:
    case cudaErrorNotSupported:
    case cudaErrorSystemNotReady:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorCompatNotSupportedOnDevice:
    case cudaErrorMpsConnectionFailed:
    case cudaErrorMpsRpcFailure:
    case cudaErrorMpsServerNotReady:
    case cudaErrorMpsMaxClientsReached:
    case cudaErrorMpsMaxConnectionsReached:
    case cudaErrorTimeout:
      return ErrorKind::device_unavailable;
    default:
      return ErrorKind::internal;  // a wrong argument, a wrong order of calls
  }
}

std::string what_to_do(ErrorKind kind) {
  if (kind == ErrorKind::device_lost) {
    return ": the device failed and this process cannot use it any more; start the program again";
  }
  if (kind != ErrorKind::does_not_fit) return "";
  size_t free = 0;
  size_t total = 0;
  if (cudaMemGetInfo(&free, &total) != cudaSuccess) {
    cudaGetLastError();
    return "";
  }
  return fmt::format(": {} of the device's {} are free", format_bytes(free), format_bytes(total));
}

}  // namespace

cudaError_t set_current(int device) {
  const cudaError_t result = cudaSetDevice(device);
  current_device = result == cudaSuccess ? device : kNotKnown;
  return result;
}

void make_current(int device) {
  if (current_device != device) check_cuda(set_current(device), "cudaSetDevice");
}

bool is_lost(cudaError_t error) {
  switch (error) {
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContained:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorContextIsDestroyed:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorTensorMemoryLeak:
    case cudaErrorMpsClientTerminated:
    case cudaErrorExternalDevice:
    case cudaErrorCudartUnloading:
    case cudaErrorUnknown:
      return true;
    default:
      return false;
  }
}

cudaError_t cuda_result(cudaError_t result) {
  if (calls_left.load(std::memory_order_relaxed) < 0) return result;
  return calls_left.fetch_sub(1) == 0 ? replacement.load() : result;
}

void check_cuda(cudaError_t result, const char* call) {
  const cudaError_t seen = cuda_result(result);
  if (seen == cudaSuccess) return;
  cudaGetLastError();
  const ErrorKind kind = kind_of(seen);
  fail(kind, "{}: {} ({}){}", call, cudaGetErrorName(seen), cudaGetErrorString(seen),
       what_to_do(kind));
}

void fail_cuda_call(int k, cudaError_t instead) {
  calls_left = -1;
  replacement = instead;
  calls_left = k;
}

}  // namespace klotski::cuda
