#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "model/description.h"
#include "model/other_files.h"
#include "model/quantization_record.h"
#include "weights/checkpoint_writer.h"
#include "weights/tensor_source.h"

namespace klotski {

// Bytes of a shard: what an interrupted run loses at most.
inline constexpr uint64_t kQuantizedShardBytes = uint64_t{1} << 30;

struct QuantizeSettings {
  int bits = 4;            // of experts and dense feed-forward parts: 4 or 3
  int64_t group = 64;      // 32, 64 or 128
  bool attention = false;  // whether attention's projections are quantised too, to 4 bits
};

// Numbers of stored tensors that might be quantised, by result.
struct QuantizeCounts {
  int64_t quantized = 0;
  int64_t packed_before = 0;
  int64_t other_types = 0;  // neither F32, F16 nor BF16
  int64_t not_smaller = 0;
  int64_t transposed = 0;  // stored column by column

  int64_t left() const { return packed_before + other_types + not_smaller + transposed; }
};

// "2 packed already, 3 no smaller when quantised": why some were left as they were.
std::string why_left(const QuantizeCounts& counts);

struct QuantizeReport {
  std::filesystem::path folder;
  QuantizeCounts counts;
  uint64_t bytes_before = 0;  // bytes of weights
  uint64_t bytes_after = 0;
  uint64_t bytes_kept = 0;  // bytes that a run before had written
  size_t weight_files = 0;
  ErrorSummary errors;                // of the tensors quantised
  std::vector<NotCopied> not_copied;  // sorted, without hidden entries
};

// Bytes of weights that are written, of how many, and the ones among them that a run before wrote.
using QuantizeProgress = std::function<void(uint64_t done, uint64_t total, uint64_t kept)>;

// Writes a model's folder anew, its weights in shards of at most max_shard_bytes: the matrices of
// experts and dense feed-forward parts quantised (tensor/hqq.h), with settings.attention those of
// attention too; every other tensor keeps its bytes. Other files are copied as compact_model()
// does, and kQuantizationFile says the error of each tensor. The folder appears under its name when
// it is complete. A run that ends before leaves the shards it completed to the next run of equal
// settings, which writes the same bytes. Refuses (usage) a model in which nothing would be
// quantised, and (bad_model) numbers that are not finite. `progress` is called from one thread at a
// time.
QuantizeReport quantize_model(const ModelDescription& model, const TensorSource& checkpoint,
                              const std::filesystem::path& out, const QuantizeSettings& settings,
                              const QuantizeProgress& progress,
                              uint64_t max_shard_bytes = kQuantizedShardBytes);

}  // namespace klotski
