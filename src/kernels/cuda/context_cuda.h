#pragma once

// What every operation of this folder runs with.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/error.h"
#include "device/cuda_call_cuda.h"
#include "kernels/ops.h"

namespace klotski::cuda {

struct Context {
  cudaStream_t stream = nullptr;
  int multiprocessors = 0;
  int capability = 0;  // 10 * major + minor
};
// Of the CudaOps that lives now.
const Context& context();

// OpsMemory's take and give_back, for as long as this lives.
class Scratch {
 public:
  explicit Scratch(uint64_t bytes);
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(memory_);
  }

 private:
  std::byte* memory_;
  uint64_t bytes_;
};

// OpsMemory's upload.
void upload(std::byte* to, const void* from, uint64_t bytes);

// Host values that a kernel reads: copied to scratch in the order of the stream.
template <typename T>
class Uploaded {
 public:
  explicit Uploaded(std::span<const T> values) : scratch_(values.size_bytes()) {
    upload(scratch_.as<std::byte>(), values.data(), values.size_bytes());
  }
  const T* data() const { return scratch_.as<T>(); }

 private:
  Scratch scratch_;
};

// Throws where the launch before this line was refused.
inline void check_launch(const char* kernel) { check_cuda(cudaGetLastError(), kernel); }

// Refuses (internal) a matrix whose rows lie apart: products read rows that follow each other.
// Those of BF16_COMPACT do so once they are expanded.
inline void check_no_gaps(const TensorView& weight) {
  if (weight.dtype == DType::BF16_COMPACT) return;
  if (weight.has_gaps()) fail(ErrorKind::internal, "weights with gaps reached a device's product");
}

// One file each.
void embed(Rows out, const TensorView& table, std::span<const TokenId> tokens);
void rms_norm(Rows out, ConstRows in, const TensorView& weight, float epsilon);
void matmul(Rows out, ConstRows in, const TensorView& weight, const TensorView& bias,
            Precision precision);
void experts(std::span<const ExpertProduct> products, Precision precision);
void rope(const RopeArguments& arguments);
void clip(std::span<float> values, float limit);
void store_kv(std::span<const KvRows> sequences);
void attention(std::span<const AttentionArguments> sequences);
void route(const RouteArguments& arguments);
void sort_by_expert(std::span<const RoutedRows> parts, int64_t experts, std::span<int32_t> in_rows,
                    std::span<int32_t> out_rows);
void add(Rows out, ConstRows in);
void gather(Rows out, ConstRows in, std::span<const int32_t> rows);
void scatter(Rows out, ConstRows in, std::span<const int32_t> rows);
void scatter_add(Rows out, ConstRows in, std::span<const int32_t> rows);
void combine(Rows out, ConstRows slots_in, std::span<const float> weights);
void sigmoid(std::span<float> values);
void most_likely(std::span<TokenId> tokens, ConstRows logits);

}  // namespace klotski::cuda
