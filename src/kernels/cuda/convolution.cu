// A causal convolution of each channel over the rows of several sequences.

#include <vector>

#include "base/error.h"
#include "kernels/cuda/activation_cuda.h"
#include "kernels/cuda/context_cuda.h"
#include "kernels/cuda/row_runs_cuda.h"
#include "kernels/cuda/stored_vector_cuda.h"

namespace klotski::cuda {

namespace {

constexpr int64_t kRunRows = 16;

struct ConvolvedSequence {
  float* out;
  const float* in;
  const float* past;  // or null
  float* next;
  int64_t tokens;
};

struct Convolution {
  const ConvolvedSequence* sequences;
  const RowRun* runs;
  StoredVector weight;  // [channels][taps]
  int64_t channels;
  int64_t taps;
};

__device__ __forceinline__ float input_at(const ConvolvedSequence& sequence,
                                          const Convolution& task, int64_t token, int64_t channel) {
  if (token >= 0) return sequence.in[token * task.channels + channel];
  if (sequence.past == nullptr) return 0.0f;
  return sequence.past[(task.taps - 1 + token) * task.channels + channel];
}

// Block (x, y): kThreads channels from x * kThreads on, run y.
template <Activation kActivation>
__global__ void convolve(Convolution task) {
  const int64_t channel = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (channel >= task.channels) return;
  const RowRun run = task.runs[blockIdx.y];
  const ConvolvedSequence sequence = task.sequences[run.sequence];
  for (int64_t token = run.first; token < run.first + run.count; ++token) {
    float sum = 0.0f;
    for (int64_t tap = 0; tap < task.taps; ++tap) {
      sum = fmaf(task.weight[channel * task.taps + tap],
                 input_at(sequence, task, token - task.taps + 1 + tap, channel), sum);
    }
    sequence.out[token * task.channels + channel] = activated<kActivation>(sum);
  }
  if (run.first + run.count < sequence.tokens) return;
  for (int64_t kept = 0; kept < task.taps - 1; ++kept) {
    sequence.next[kept * task.channels + channel] =
        input_at(sequence, task, sequence.tokens - task.taps + 1 + kept, channel);
  }
}

using ConvolveKernel = void (*)(Convolution);
ConvolveKernel convolve_kernel(Activation activation) {
  switch (activation) {
    case Activation::silu:
      return convolve<Activation::silu>;
    case Activation::gelu:
      return convolve<Activation::gelu>;
    case Activation::gelu_tanh:
      return convolve<Activation::gelu_tanh>;
    case Activation::relu:
      return convolve<Activation::relu>;
    default:
      fail(ErrorKind::internal, "a convolution has no clamped SwiGLU");
  }
}

}  // namespace

void CudaProcessor::causal_convolution(std::span<const ConvolutionArguments> sequences,
                                       const TensorView& weight, Activation activation) const {
  if (sequences.empty()) return;
  const Context& with = context();
  std::vector<ConvolvedSequence> tasks;
  for (const ConvolutionArguments& one : sequences) {
    tasks.push_back({one.out.data, one.in.data, one.past, one.next, one.in.count});
  }
  const std::vector<RowRun> runs = row_runs(std::span<const ConvolvedSequence>(tasks), kRunRows,
                                            [](const auto& one) { return one.tokens; });
  const Uploaded<ConvolvedSequence> uploaded(with, std::span<const ConvolvedSequence>(tasks));
  const Uploaded<RowRun> uploaded_runs(with, std::span<const RowRun>(runs));
  const Convolution task = {uploaded.data(), uploaded_runs.data(), stored_vector(weight),
                            weight.rows(), weight.columns()};
  const dim3 grid(blocks_of(task.channels, kThreads), static_cast<unsigned>(runs.size()));
  convolve_kernel(activation)<<<grid, kThreads, 0, with.stream>>>(task);
  check_launch("convolve");
}

}  // namespace klotski::cuda
