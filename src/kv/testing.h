#pragma once

// A small model and recognisable numbers for the tests of this folder.

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/testing.h"
#include "kv/paged_cache.h"
#include "memory/alignment.h"
#include "memory/spill_file.h"
#include "model/description.h"
#include "tensor/half.h"

namespace klotski::testing {

// Types of keys and values.
inline auto both_types() { return ::testing::Values(DType::F32, DType::BF16); }
inline std::string type_name(const ::testing::TestParamInfo<DType>& info) {
  return std::string(dtype_name(info.param));
}

inline ModelDescription two_layers() {
  ModelDescription model;
  for (const int64_t kv_heads : {1, 2}) {
    GroupedHeads heads;
    heads.query_heads = 2;
    heads.kv_heads = kv_heads;
    heads.head_dim = 3;
    model.layers.push_back({heads, {}});
  }
  return model;
}

// Bytes of a page of two_layers() in the file, of either type: each layer's page is rounded up.
inline constexpr uint64_t kSpillPageBytes = 2 * kDirectAlignment;

// Memory for a stage.
class StageBuffer {
 public:
  explicit StageBuffer(uint64_t bytes)
      : bytes_(round_up_to_alignment(bytes + 1)),
        data_(static_cast<std::byte*>(std::aligned_alloc(kDirectAlignment, bytes_))) {
    std::memset(data_, 0xFF, bytes_);  // NaN: numbers that were never loaded or written are noticed
  }
  ~StageBuffer() { std::free(data_); }
  StageBuffer(const StageBuffer&) = delete;
  StageBuffer& operator=(const StageBuffer&) = delete;
  std::span<std::byte> bytes() const { return {data_, bytes_}; }

 private:
  uint64_t bytes_;
  std::byte* data_;
};

// The number in an element of a position's key, for positions below 1000; its value holds the
// negative. Three neighbouring elements are the digits of a number that no other position of any
// sequence below 8000 has in any of two layers; a digit is exact in BF16.
inline float mark(int64_t sequence, int64_t position, LayerId layer, int64_t element) {
  int64_t number = sequence * 2000 + position * 2 + layer.value;
  for (int64_t i = 0; i < element % 3; ++i) number /= 256;
  return static_cast<float>(number % 256 + 1);
}

// A store in a temporary file of a folder.
inline SpillPages::MakeStore file_store(const std::string& folder = ::testing::TempDir(),
                                        SpillCalls& calls = SpillCalls::system()) {
  return [folder, &calls](uint64_t bytes) -> std::unique_ptr<SpillStore> {
    return std::make_unique<SpillFile>(folder, bytes, calls);
  };
}

// Keys and values of consecutive reserved positions, in memory or in the stage.
inline void put_rows(PagedKvCache& cache, const KvSequence& sequence, LayerId layer,
                     int64_t first_position, ConstRows keys, ConstRows values,
                     const KvStage* stage = nullptr) {
  const KvView view = cache.view(sequence, layer, stage);
  const KvRows rows{keys_and_values(view.cache()), first_position, keys, values};
  reference_processor().store_kv(std::span(&rows, 1));
}

inline void write_marks(PagedKvCache& cache, const ModelDescription& model, int64_t number,
                        const KvSequence& sequence, LayerId layer, int64_t tokens,
                        const KvStage* stage) {
  const int64_t width = model.layer(layer).attention.grouped_heads().key_width();
  std::vector<float> keys;
  for (int64_t i = 0; i < tokens; ++i) {
    for (int64_t c = 0; c < width; ++c) {
      keys.push_back(mark(number, sequence.length() + i, layer, c));
    }
  }
  std::vector<float> values = keys;
  for (float& value : values) value = -value;
  put_rows(cache, sequence, layer, sequence.length(), {keys.data(), tokens, width},
           {values.data(), tokens, width}, stage);
}

inline float cached_value(const std::byte* page, DType type, int64_t at) {
  return type == DType::BF16 ? bf16_to_float(reinterpret_cast<const uint16_t*>(page)[at])
                             : reinterpret_cast<const float*>(page)[at];
}

// Whether positions 0 .. length - 1 hold their marks, as far as `page_kept` says.
template <typename PageKept>
bool holds_marks(const KvPages& pages, const ModelDescription& model, int64_t number,
                 int64_t length, LayerId layer, const PageKept& page_kept) {
  const int64_t width = model.layer(layer).attention.grouped_heads().key_width();
  for (int64_t p = 0; p < length; ++p) {
    const auto page = static_cast<size_t>(p / kKvPageTokens);
    if (!page_kept(static_cast<int64_t>(page))) {
      if (pages.keys[page] != nullptr || pages.values[page] != nullptr) return false;
      continue;
    }
    if (pages.keys[page] == nullptr || pages.values[page] == nullptr) return false;
    for (int64_t c = 0; c < width; ++c) {
      const int64_t at = p % kKvPageTokens * width + c;
      const float expected = mark(number, p, layer, c);
      if (cached_value(pages.keys[page], pages.type, at) != expected) return false;
      if (cached_value(pages.values[page], pages.type, at) != -expected) return false;
    }
  }
  return true;
}

}  // namespace klotski::testing
