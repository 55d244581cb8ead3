#include <cstring>

#include "kernels/reference/reference_processor.h"
#include "tensor/half.h"

namespace klotski::reference {

namespace {

void put_row(std::byte* page, int64_t row, DType type, std::span<const float> values) {
  if (type == DType::F32) {
    std::memcpy(page + row * static_cast<int64_t>(values.size_bytes()), values.data(),
                values.size_bytes());
    return;
  }
  auto* const rounded = reinterpret_cast<uint16_t*>(page) + row * std::ssize(values);
  for (size_t i = 0; i < values.size(); ++i) rounded[i] = float_to_bf16(values[i]);
}

}  // namespace

void ReferenceProcessor::store_kv(std::span<const KvRows> sequences) const {
  for (const KvRows& sequence : sequences) {
    const KvPages& cache = sequence.cache;
    const auto key_width = static_cast<size_t>(sequence.keys.width);
    const auto value_width = static_cast<size_t>(sequence.values.width);
    for (int64_t i = 0; i < sequence.keys.count; ++i) {
      const int64_t position = sequence.first_position + i;
      const auto page = static_cast<size_t>(position / cache.page_tokens);
      const int64_t row = position % cache.page_tokens;
      put_row(cache.keys[page], row, cache.type, {sequence.keys.row(i), key_width});
      if (cache.values.empty()) continue;
      put_row(cache.values[page], row, cache.type, {sequence.values.row(i), value_width});
    }
  }
}

}  // namespace klotski::reference
