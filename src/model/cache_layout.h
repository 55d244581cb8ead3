#pragma once

// The data that the attention of a layer keeps of a sequence between steps, as layouts. kv/ makes
// room by these layouts and knows no kind of attention; forward/ finds the parts in the order of
// the layout.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "tensor/dtype.h"

namespace klotski {

struct ModelDescription;

// Numbers of a row that belong together: queries, keys, ...
struct RowPart {
  std::string_view name;
  int64_t width = 0;

  bool operator==(const RowPart&) const = default;
};

// The data that one layer keeps of one sequence.
struct CacheLayout {
  std::vector<RowPart> parts;  // parts of every position; none where only a state is kept
  uint64_t state_bytes = 0;    // bytes of a state of fixed size; 0: the layer has none

  int64_t numbers_per_position() const {
    int64_t numbers = 0;
    for (const RowPart& part : parts) numbers += part.width;
    return numbers;
  }
  bool operator==(const CacheLayout&) const = default;
};

// The layouts of a model's layers, in their order.
class CacheLayouts {
 public:
  CacheLayouts(const ModelDescription& model);
  explicit CacheLayouts(std::vector<CacheLayout> layers) : layers_(std::move(layers)) {}

  std::span<const CacheLayout> layers() const { return layers_; }

 private:
  std::vector<CacheLayout> layers_;
};

// The data of one layer and one sequence, where operations find it during a step. Points to memory
// that others own.
struct LayerCache {
  // Pages of each part of the layout, [page_tokens][width], by position / page_tokens.
  std::vector<std::span<std::byte* const>> parts = {};
  DType type = DType::F32;  // type of the parts' numbers: F32 or BF16
  int64_t page_tokens = 0;
  // A lossy cache keeps the first kept_prefix and the last kept_window positions, and pages without
  // any of them are null; kept_window 0: every position is kept.
  int64_t kept_prefix = 0;
  int64_t kept_window = 0;

  // The state after the committed steps, empty before the first one (it counts as zeros then), and
  // the state that the step at hand writes. Both are empty where the layout has none.
  std::span<const std::byte> state = {};
  std::span<std::byte> next_state = {};
};

}  // namespace klotski
