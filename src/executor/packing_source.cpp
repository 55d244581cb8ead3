#include "executor/packing_source.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "memory/alignment.h"
#include "tensor/format.h"

namespace klotski {

namespace {

uint64_t largest_unit(const UnitLayouts& layouts) {
  uint64_t most = 0;
  for (size_t k = 0; k < kUnitKinds; ++k) {
    most = std::max(most, layouts.buffer_bytes(static_cast<UnitKind>(k)));
  }
  return (most + kDirectAlignment - 1) / kDirectAlignment * kDirectAlignment;
}

// Copies a part as its file has it: whoever reads settles it.
void copy_part(const PlacedPart& from, const std::byte* plain, const PlacedPart& to,
               std::span<std::byte> buffer) {
  std::memcpy(buffer.data() + to.arrives_at, plain + from.arrives_at, to.bytes);
}

const PlacedTensor& tensor_like(const PlacedTensor& tensor, const UnitLayout& stored,
                                const WeightUnit& unit) {
  const auto from =
      std::find_if(stored.tensors.begin(), stored.tensors.end(),
                   [&](const PlacedTensor& other) { return other.role == tensor.role; });
  if (from == stored.tensors.end() || from->sides.size() != tensor.sides.size()) {
    fail(ErrorKind::internal, "{}: its layout is not that of the packed model", format_unit(unit));
  }
  return *from;
}

// Writes the rows of a matrix one after the other, each packed; false where a row cannot be.
bool pack_rows(const TensorView& plain, DType packed_type, std::byte* out, const Processor& cpu) {
  const WeightFormat& format = format_of(packed_type);
  const int64_t columns = plain.columns();
  const int64_t row_bytes = format.row_bytes(columns);
  std::atomic<bool> packed = true;
  cpu.parallel_for(plain.rows(), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const std::byte* numbers = plain.data + row * plain.stride();
      if (!format.pack(numbers, columns, out + row * row_bytes)) packed = false;
    }
  });
  return packed;
}

}  // namespace

PackingSource::PackingSource(const ModelDescription& model, const TensorSource& plain,
                             std::shared_ptr<UnitSource> inner)
    : layouts_(model, plain), inner_(std::move(inner)), tier_("packing", largest_unit(layouts_)) {}

void PackingSource::read(const WeightUnit& unit, const UnitLayout& layout,
                         std::span<std::byte> buffer, const Processor& cpu) {
  if (!plain_) plain_.emplace(tier_, "plain weights", 1, tier_.limit_bytes());
  const std::span<std::byte> plain = plain_->buffer(0);
  const UnitLayout& stored = layouts_.of(unit);
  inner_->read(unit, stored, plain, cpu);
  for (const PlacedTensor& tensor : layout.tensors) {
    const PlacedTensor& from = tensor_like(tensor, stored, unit);
    if (from.dtype != tensor.dtype) continue;
    copy_part(stored.numbers_of(from), plain.data(), layout.numbers_of(tensor), buffer);
    for (size_t i = 0; i < tensor.sides.size(); ++i) {
      copy_part(stored.parts[from.sides[i]], plain.data(), layout.parts[tensor.sides[i]], buffer);
    }
  }
  settle(stored, plain.data());
  for (const PlacedTensor& tensor : layout.tensors) {
    const PlacedTensor& from = tensor_like(tensor, stored, unit);
    if (from.dtype == tensor.dtype) continue;
    if (!pack_rows(stored.view(from, plain.data()), tensor.dtype,
                   buffer.data() + layout.numbers_of(tensor).arrives_at, cpu)) {
      throw NotPackable(fmt::format("{}: a row of it cannot be {}, its numbers differ too much",
                                    format_unit(unit), dtype_name(tensor.dtype)));
    }
  }
}

}  // namespace klotski
