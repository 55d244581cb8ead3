#include <cstdint>

#include "kernels/cuda/context_cuda.h"

namespace klotski::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int64_t kHeadsPerThread = 4;  // heads that share one sine and cosine

struct Shape {
  float* heads;  // [tokens][head_count * head_dim]
  const int32_t* positions;
  const float* frequencies;  // [tables][pairs]
  const int32_t* tables;     // null: all tokens have the first row
  int64_t tokens;
  int64_t head_count;
  int64_t head_dim;
  int64_t pairs;
  int64_t first;  // numbers of a head before the rotated ones
  float scale;
  bool interleaved;
};

// One thread: one pair of kHeadsPerThread heads of one token.
__global__ void rope_kernel(const Shape shape) {
  const int64_t parts = (shape.head_count + kHeadsPerThread - 1) / kHeadsPerThread;
  const int64_t index = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int64_t pair = index % shape.pairs;
  const int64_t part = index / shape.pairs % parts;
  const int64_t token = index / shape.pairs / parts;
  if (token >= shape.tokens) return;

  const int64_t table = shape.tables == nullptr ? 0 : shape.tables[token];
  const float angle =
      static_cast<float>(shape.positions[token]) * shape.frequencies[table * shape.pairs + pair];
  float sine;
  float cosine;
  sincosf(angle, &sine, &cosine);
  sine *= shape.scale;
  cosine *= shape.scale;

  const int64_t first = shape.first + (shape.interleaved ? 2 * pair : pair);
  const int64_t second = first + (shape.interleaved ? 1 : shape.pairs);
  const int64_t begin = part * kHeadsPerThread;
  const int64_t end = min(begin + kHeadsPerThread, shape.head_count);
  for (int64_t head = begin; head < end; ++head) {
    float* values = shape.heads + (token * shape.head_count + head) * shape.head_dim;
    const float a = values[first];
    const float b = values[second];
    values[first] = a * cosine - b * sine;
    values[second] = b * cosine + a * sine;
  }
}

}  // namespace

void CudaProcessor::rope(const RopeArguments& arguments) const {
  const Shape shape = {.heads = arguments.heads.data,
                       .positions = arguments.positions.data(),
                       .frequencies = arguments.frequencies.data(),
                       .tables = arguments.tables.empty() ? nullptr : arguments.tables.data(),
                       .tokens = arguments.heads.count,
                       .head_count = arguments.heads.width / arguments.head_dim,
                       .head_dim = arguments.head_dim,
                       .pairs = arguments.pairs,
                       .first = arguments.first,
                       .scale = arguments.scale,
                       .interleaved = arguments.interleaved};
  const int64_t parts = (shape.head_count + kHeadsPerThread - 1) / kHeadsPerThread;
  const int64_t work = shape.tokens * parts * shape.pairs;
  if (work == 0) return;
  const auto blocks = static_cast<unsigned>((work + kThreads - 1) / kThreads);
  rope_kernel<<<blocks, kThreads, 0, context().stream>>>(shape);
  check_launch("rope");
}

}  // namespace klotski::cuda
