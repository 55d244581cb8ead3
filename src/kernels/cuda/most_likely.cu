#include <climits>
#include <cmath>

#include "kernels/cuda/context_cuda.h"
#include "kernels/cuda/warp_cuda.h"

namespace klotski::cuda {

namespace {

constexpr unsigned kThreads = 512;
constexpr unsigned kWarps = kThreads / kWarp;

// The largest of some logits, and where it is: the first of equal ones.
struct Best {
  float logit = -INFINITY;
  int token = INT_MAX;  // none is larger than -infinity
  bool broken = false;  // one is a NaN or +infinity

  __device__ __forceinline__ void take(const Best& other) {
    const bool before = other.logit == logit && other.token < token;
    if (other.logit > logit || before) {
      logit = other.logit;
      token = other.token;
    }
    broken |= other.broken;
  }
};

__device__ __forceinline__ Best warp_best(Best best) {
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    Best other;
    other.logit = __shfl_xor_sync(kWholeWarp, best.logit, distance);
    other.token = __shfl_xor_sync(kWholeWarp, best.token, distance);
    other.broken = __shfl_xor_sync(kWholeWarp, static_cast<int>(best.broken), distance) != 0;
    best.take(other);
  }
  return best;
}

// A block a row.
__global__ void find_most_likely(TokenId* tokens, const float* logits, int64_t width) {
  const float* row = logits + int64_t{blockIdx.x} * width;
  Best best;
  for (int64_t i = threadIdx.x; i < width; i += kThreads) {
    best.take({row[i], static_cast<int>(i), !(row[i] < INFINITY)});
  }
  if (best.logit == -INFINITY) best.token = INT_MAX;
  best = warp_best(best);
  __shared__ float logit_of[kWarps];
  __shared__ int token_of[kWarps];
  __shared__ bool broken_of[kWarps];
  const unsigned warp = threadIdx.x / kWarp;
  const unsigned lane = threadIdx.x % kWarp;
  if (lane == 0) {
    logit_of[warp] = best.logit;
    token_of[warp] = best.token;
    broken_of[warp] = best.broken;
  }
  __syncthreads();
  if (warp > 0) return;
  best = lane < kWarps ? Best{logit_of[lane], token_of[lane], broken_of[lane]} : Best{};
  best = warp_best(best);
  if (lane == 0) tokens[blockIdx.x] = best.broken || best.token == INT_MAX ? -1 : best.token;
}

}  // namespace

void CudaProcessor::most_likely(std::span<TokenId> tokens, ConstRows logits) const {
  if (logits.count == 0) return;
  find_most_likely<<<static_cast<unsigned>(logits.count), kThreads, 0, context().stream>>>(
      tokens.data(), logits.data, logits.width);
  check_launch("find_most_likely");
}

}  // namespace klotski::cuda
