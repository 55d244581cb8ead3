#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "tensor/dtype.h"
#include "weights/checkpoint_writer.h"

namespace klotski {

// A model with random weights, made to measure with where a real one is too large to have around.
struct SynthOptions {
  std::string shape;             // see model/families/shapes.h; ",compact" at its end sets the type
  std::filesystem::path folder;  // new, or empty
  uint64_t seed = 0;
  // The share of all choices that the top_k most popular experts of a layer take together; one half
  // unless given, or even routing where that gives them more.
  std::optional<double> share;
  // A packed format: experts are packed wherever that saves bytes, all else is BF16.
  DType dtype = DType::BF16;
  std::optional<std::filesystem::path> tokenizer;  // a folder to copy it from, instead of our own
};

struct SynthReport {
  std::filesystem::path folder;
  std::string family;
  int64_t parameters = 0;
  uint64_t weight_bytes = 0;
  size_t weight_files = 0;
  double share = 0.0;
};

// Writes the folder: config.json, weights, tokenizer. Equal options give equal bytes on every
// machine. The folder appears under its name when it is complete. `progress` gets the bytes of
// weights written so far and their total, from one thread at a time.
SynthReport synthesise(const SynthOptions& options,
                       const std::function<void(uint64_t done, uint64_t total)>& progress,
                       uint64_t max_shard_bytes = kMaxShardBytes);

}  // namespace klotski
