// Speed of the operations on a device compared with the device's limits: experts with the bare
// products of the library, products with quantised weights with plain copies, attention in FLOPs
// and bytes a second. Prints JSON.

#include <cuda_runtime.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "device/device.h"
#include "kernels/cuda/context_cuda.h"
#include "kernels/cuda/cublas_cuda.h"
#include "kernels/cuda/products_cuda.h"
#include "kernels/cuda_processor.h"
#include "tensor/format.h"

namespace klotski {
namespace {

constexpr uint64_t kArenaBytes = uint64_t{12} << 30;
constexpr int kRuns = 15;

// Memory with random content in which every 16 bits are a bf16 number of small magnitude.
class RandomMemory {
 public:
  RandomMemory(const Processor& ops, uint64_t bytes)
      : memory_(ops.memory), bytes_(bytes), data_(memory_.take(bytes)) {
    std::vector<uint32_t> piece(std::min<uint64_t>(bytes, 4 << 20) / sizeof(uint32_t));
    uint32_t state = 7;
    for (uint32_t& word : piece) {
      state = state * 1664525u + 1013904223u;
      word = (state & 0x81FF81FFu) | 0x3C003C00u;
    }
    for (uint64_t at = 0; at < bytes; at += piece.size() * sizeof(uint32_t)) {
      memory_.upload(data_ + at, piece.data(),
                     std::min<uint64_t>(piece.size() * sizeof(uint32_t), bytes - at));
    }
  }
  ~RandomMemory() { memory_.give_back(data_, bytes_); }
  RandomMemory(const RandomMemory&) = delete;
  RandomMemory& operator=(const RandomMemory&) = delete;

  std::byte* data() const { return data_; }
  float* floats() const { return reinterpret_cast<float*>(data_); }

 private:
  ProcessorMemory& memory_;
  uint64_t bytes_;
  std::byte* data_;
};

// The median by the device's clock, after two that do not count.
double seconds_of(const cuda::Context& with, const std::function<void(int)>& call) {
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  cuda::check_cuda(cudaEventCreate(&begin), "cudaEventCreate");
  cuda::check_cuda(cudaEventCreate(&end), "cudaEventCreate");
  std::vector<double> seconds;
  for (int run = -2; run < kRuns; ++run) {
    cuda::check_cuda(cudaEventRecord(begin, with.stream), "cudaEventRecord");
    call(run + 2);
    cuda::check_cuda(cudaEventRecord(end, with.stream), "cudaEventRecord");
    cuda::check_cuda(cudaEventSynchronize(end), "cudaEventSynchronize");
    float milliseconds = 0;
    cuda::check_cuda(cudaEventElapsedTime(&milliseconds, begin, end), "cudaEventElapsedTime");
    if (run >= 0) seconds.push_back(static_cast<double>(milliseconds) / 1e3);
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 2];
}

// An expert in turn with others, so that no cache holds its weights.
std::string measure_experts(const cuda::CudaProcessor& ops, int64_t hidden, int64_t width) {
  constexpr int kExperts = 3;
  const uint64_t matrix = static_cast<uint64_t>(hidden * width) * 2;
  const RandomMemory weights(ops, kExperts * 3 * matrix);
  const auto view = [&](int expert, int which, int64_t rows, int64_t columns) {
    return TensorView{
        .data = weights.data() + static_cast<uint64_t>(3 * (expert % kExperts) + which) * matrix,
        .dtype = DType::BF16,
        .shape = {rows, columns}};
  };
  std::string lines;
  for (const int64_t rows : {1, 8, 64, 256, 1024, 2048, 4096, 8192}) {
    const RandomMemory in(ops, static_cast<uint64_t>(rows * hidden) * 4);
    const RandomMemory out(ops, static_cast<uint64_t>(rows * hidden) * 4);
    std::vector<int32_t> numbers;
    for (int64_t i = 0; i < rows; ++i) numbers.push_back(static_cast<int32_t>(rows - 1 - i));
    const cuda::Uploaded<int32_t> list(ops.context(), std::span<const int32_t>(numbers));
    const std::span<const int32_t> all(list.data(), numbers.size());
    const double ours = seconds_of(ops.context(), [&](int run) {
      const ExpertProduct product{.out = {out.floats(), rows, hidden},
                                  .in = {in.floats(), rows, hidden},
                                  .out_rows = all,
                                  .in_rows = all,
                                  .gate = view(run, 0, width, hidden),
                                  .up = view(run, 1, width, hidden),
                                  .down = view(run, 2, hidden, width)};
      ops.experts(std::span(&product, 1), Precision::bf16);
    });
    const RandomMemory middle(ops, static_cast<uint64_t>(rows * width) * 4);
    const double library = seconds_of(ops.context(), [&](int run) {
      for (int which = 0; which < 3; ++which) {
        const bool down = which == 2;
        ops.context().cublas->multiply({.out = down ? out.floats() : middle.floats(),
                                        .in = down ? middle.data() : in.data(),
                                        .weight = view(run, which, 1, 1).data,
                                        .type = CUDA_R_16BF,
                                        .rows = rows,
                                        .out_width = down ? hidden : width,
                                        .in_width = down ? width : hidden,
                                        .out_stride = down ? hidden : width});
      }
    });
    const double flops = 6.0 * static_cast<double>(rows * hidden * width);
    lines += fmt::format(
        "  {{\"what\": \"expert {}x{}\", \"rows\": {}, \"microseconds\": {:.1f}, \"tflops\": "
        "{:.1f}, "
        "\"weight_gb_per_s\": {:.0f}, \"cublas_microseconds\": {:.1f}, \"cublas_tflops\": {:.1f}, "
        "\"share_of_cublas\": {:.3f}}},\n",
        hidden, width, rows, ours * 1e6, flops / ours / 1e12,
        3.0 * static_cast<double>(matrix) / ours / 1e9, library * 1e6, flops / library / 1e12,
        library / ours);
  }
  return lines;
}

// The experts of a layer that are in the device's memory, in one call with `rows` rows each: another
// layer in turn, so that no cache holds their weights.
std::string measure_layer(const cuda::CudaProcessor& ops, DType type, int64_t experts,
                          int64_t rows) {
  constexpr int64_t kHidden = 2048;
  constexpr int64_t kWidth = 768;
  constexpr int kLayers = 4;
  const auto wide = static_cast<uint64_t>(kWidth * bytes_per_row(type, kHidden));
  const auto narrow = static_cast<uint64_t>(kHidden * bytes_per_row(type, kWidth));
  const uint64_t expert_bytes = 2 * wide + narrow;
  const uint64_t layer_bytes = static_cast<uint64_t>(experts) * expert_bytes;
  const RandomMemory weights(ops, kLayers * layer_bytes);
  const RandomMemory in(ops, static_cast<uint64_t>(rows * kHidden) * 4);
  const RandomMemory out(ops, static_cast<uint64_t>(experts * rows * kHidden) * 4);
  std::vector<int32_t> numbers;
  for (int64_t i = 0; i < experts * rows; ++i) numbers.push_back(static_cast<int32_t>(i));
  const cuda::Uploaded<int32_t> list(ops.context(), std::span<const int32_t>(numbers));
  const auto view = [&](const std::byte* data, int64_t outputs, int64_t columns) {
    return TensorView{.data = data, .dtype = type, .shape = {outputs, columns}};
  };
  const double seconds = seconds_of(ops.context(), [&](int run) {
    std::vector<ExpertProduct> products;
    const std::byte* data =
        weights.data() + static_cast<uint64_t>(run % kLayers) * layer_bytes;
    for (int64_t e = 0; e < experts; ++e, data += expert_bytes) {
      const std::span<const int32_t> out_rows(list.data() + e * rows, static_cast<size_t>(rows));
      products.push_back({.out = {out.floats(), experts * rows, kHidden},
                          .in = {in.floats(), rows, kHidden},
                          .out_rows = out_rows,
                          .in_rows = std::span<const int32_t>(list.data(), out_rows.size()),
                          .gate = view(data, kWidth, kHidden),
                          .up = view(data + wide, kWidth, kHidden),
                          .down = view(data + 2 * wide, kHidden, kWidth)});
    }
    ops.experts(products, Precision::bf16);
  });
  return fmt::format(
      "  {{\"what\": \"{} experts of {}x{} in one call, {}\", \"rows\": {}, \"microseconds\": {:.1f}, "
      "\"stored_gb_per_s\": {:.0f}}},\n",
      experts, kHidden, kWidth, dtype_name(type), rows, seconds * 1e6,
      static_cast<double>(layer_bytes) / seconds / 1e9);
}

// A product with few rows by weights of a quantised format, in stored bytes a second: matrices in
// turn, so that no cache holds them, beside a plain copy of as many bytes within the device.
std::string measure_quantised(const cuda::CudaProcessor& ops, DType type) {
  constexpr int64_t kColumns = 4096;
  constexpr int64_t kOutputs = 14336;
  constexpr int kMatrices = 6;
  const auto bytes = static_cast<uint64_t>(kOutputs * bytes_per_row(type, kColumns));
  const RandomMemory weights(ops, kMatrices * bytes);
  const RandomMemory copied(ops, bytes);
  const cuda::Context& with = ops.context();
  const double copy = seconds_of(with, [&](int run) {
    const std::byte* from = weights.data() + static_cast<uint64_t>(run % kMatrices) * bytes;
    cuda::check_cuda(
        cudaMemcpyAsync(copied.data(), from, bytes, cudaMemcpyDeviceToDevice, with.stream),
        "cudaMemcpyAsync");
  });
  std::string lines;
  for (const int64_t rows : {1, 2, 4, 8, 16, 64, 512}) {
    const RandomMemory in(ops, static_cast<uint64_t>(rows * kColumns) * 4);
    const RandomMemory out(ops, static_cast<uint64_t>(rows * kOutputs) * 4);
    const double seconds = seconds_of(with, [&](int run) {
      const TensorView weight{
          .data = weights.data() + static_cast<uint64_t>(run % kMatrices) * bytes,
          .dtype = type,
          .shape = {kOutputs, kColumns}};
      ops.matmul({out.floats(), rows, kOutputs}, {in.floats(), rows, kColumns}, weight, {},
                 Precision::bf16);
    });
    // A copy reads each byte and writes it.
    lines += fmt::format(
        "  {{\"what\": \"product with {}\", \"rows\": {}, \"microseconds\": {:.1f}, "
        "\"stored_gb_per_s\": {:.0f}, \"copy_gb_per_s\": {:.0f}}},\n",
        dtype_name(type), rows, seconds * 1e6, static_cast<double>(bytes) / seconds / 1e9,
        2.0 * static_cast<double>(bytes) / copy / 1e9);
  }
  return lines;
}

// Sequences whose keys and values lie in pages of 16 positions.
std::string measure_attention(const cuda::CudaProcessor& ops, int64_t sequences, int64_t tokens,
                              int64_t positions) {
  constexpr int64_t kHeads = 32;
  constexpr int64_t kKvHeads = 8;
  constexpr int64_t kDim = 128;
  constexpr int64_t kPage = 16;
  const int64_t pages = (positions + kPage - 1) / kPage;
  const uint64_t page_bytes = kPage * kKvHeads * kDim * 2;
  const RandomMemory cache(ops, static_cast<uint64_t>(2 * sequences * pages) * page_bytes);
  const RandomMemory queries(ops, static_cast<uint64_t>(sequences * tokens * kHeads * kDim) * 4);
  const RandomMemory output(ops, static_cast<uint64_t>(sequences * tokens * kHeads * kDim) * 4);
  std::vector<std::byte*> addresses;
  for (int64_t i = 0; i < 2 * sequences * pages; ++i) {
    addresses.push_back(cache.data() + static_cast<uint64_t>(i) * page_bytes);
  }
  std::vector<AttentionArguments> arguments;
  for (int64_t s = 0; s < sequences; ++s) {
    const auto list = [&](int64_t which) {
      return std::span<std::byte* const>(addresses).subspan(
          static_cast<size_t>((2 * s + which) * pages), static_cast<size_t>(pages));
    };
    arguments.push_back(
        {.output = {output.floats() + s * tokens * kHeads * kDim, tokens, kHeads * kDim},
         .queries = {queries.floats() + s * tokens * kHeads * kDim, tokens, kHeads * kDim},
         .query_heads = kHeads,
         .kv_heads = kKvHeads,
         .cache = {.keys = list(0), .values = list(1), .type = DType::BF16, .page_tokens = kPage},
         .first_position = positions - tokens,
         .scale = 0.088f,
         .precision = Precision::bf16});
  }
  const double seconds = seconds_of(ops.context(), [&](int) { ops.attention(arguments); });
  const double seen = static_cast<double>(tokens) *
                      (static_cast<double>(positions) - static_cast<double>(tokens - 1) / 2.0);
  const double flops = 4.0 * static_cast<double>(sequences * kHeads * kDim) * seen;
  const double bytes = 4.0 * static_cast<double>(sequences * positions * kKvHeads * kDim);
  return fmt::format(
      "  {{\"what\": \"attention\", \"sequences\": {}, \"tokens\": {}, \"positions\": {}, "
      "\"microseconds\": {:.1f}, \"tflops\": {:.1f}, \"kv_gb_per_s\": {:.0f}}},\n",
      sequences, tokens, positions, seconds * 1e6, flops / seconds / 1e12, bytes / seconds / 1e9);
}

int run() {
  const std::unique_ptr<Device> device = open_device(0);
  const cuda::CudaProcessor ops(*device);
  const ArenaUse arena(ops, {device->allocate(kArenaBytes), kArenaBytes});
  std::string lines = measure_experts(ops, 4096, 14336) + measure_experts(ops, 2048, 768);
  for (const DType type : {DType::BF16, DType::Q4_K, DType::MXFP4}) {
    lines += measure_layer(ops, type, 8, 1) + measure_layer(ops, type, 32, 4);
  }
  for (auto type = DType::Q4_0; type <= DType::MXFP4;
       type = static_cast<DType>(static_cast<int>(type) + 1)) {
    lines += measure_quantised(ops, type);
  }
  for (const int64_t tokens : {512, 2048, 8192}) lines += measure_attention(ops, 1, tokens, tokens);
  lines += measure_attention(ops, 16, 512, 512);
  lines += measure_attention(ops, 8, 2048, 2048);
  for (const int64_t sequences : {1, 64, 256}) lines += measure_attention(ops, sequences, 1, 544);
  lines.resize(lines.size() - 2);
  fmt::print("{{\"device\": \"{}\", \"kernels\": [\n{}\n]}}\n", device->info().name, lines);
  return 0;
}

}  // namespace
}  // namespace klotski

int main() {
  try {
    return klotski::run();
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
