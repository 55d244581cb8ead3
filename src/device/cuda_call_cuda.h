#pragma once

// The seam for CUDA calls: each result passes through here, where tests can replace it.

#include <cuda_runtime.h>

namespace klotski::cuda {

// Throws for anything but success, and clears the error where it can be cleared, so that a later
// check of a launch does not find it; `call` is named in the message. Memory that the device does
// not have is does_not_fit, an error that makes every later call fail too device_lost, a device
// that refuses to work device_unavailable, anything else internal.
void check_cuda(cudaError_t result, const char* call);

// The result, or the one that a test wants seen: for a call that may well be refused.
[[nodiscard]] cudaError_t cuda_result(cudaError_t result);

// Makes a device the current one of the calling thread, which each has for itself, at first number
// 0. Nothing else calls cudaSetDevice, so that make_current() knows where there is nothing to do.
cudaError_t set_current(int device);
void make_current(int device);

// Whether an error is one after which the process can only end.
bool is_lost(cudaError_t error);

// Tests: the k-th result from now on (0 the next) is seen as `instead`; k = -1: none is. Any
// thread.
void fail_cuda_call(int k, cudaError_t instead);

}  // namespace klotski::cuda
