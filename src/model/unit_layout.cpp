#include "model/unit_layout.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "memory/alignment.h"

namespace klotski {

namespace {

// The entry behind a spec, refused if its shape or type is not what the description requires.
const TensorEntry& checked_entry(const Checkpoint& checkpoint, const TensorSpec& spec) {
  const TensorEntry& entry = checkpoint.require(spec.name);
  if (entry.shape != spec.shape) {
    fail(ErrorKind::bad_model, "{}: tensor {}: config.json implies shape {}, found {}",
         in_quotes(checkpoint.folder().native(), 300), in_quotes(spec.name),
         format_shape(spec.shape), format_shape(entry.shape));
  }
  const bool readable =
      entry.dtype == DType::F32 || entry.dtype == DType::F16 || entry.dtype == DType::BF16;
  if (!readable) {
    fail(ErrorKind::bad_model, "{}: tensor {}: expected type F32, F16 or BF16, found {}",
         in_quotes(checkpoint.folder().native(), 300), in_quotes(spec.name),
         dtype_name(entry.dtype));
  }
  return entry;
}

uint64_t element_bytes(const TensorEntry& entry) {
  return static_cast<uint64_t>(bytes_per_element(entry.dtype));
}

bool element_aligned(const TensorEntry& entry) { return entry.offset % element_bytes(entry) == 0; }

constexpr uint64_t kPackedAlignment = 256;  // of each tensor: what devices load fastest

struct Piece {
  Role role;
  const TensorEntry* entry;
};

// Whether a piece can share the read before it: it begins within or right after what that read
// brings, and neither has to be moved (moving uses the bytes in front of a tensor).
bool joins(const UnitRead& read, const Piece& previous, const Piece& piece) {
  return piece.entry->shard == read.shard && element_aligned(*previous.entry) &&
         element_aligned(*piece.entry) && piece.entry->offset <= read.offset + read.bytes;
}

}  // namespace

bool UnitLayout::must_settle() const {
  return std::any_of(tensors.begin(), tensors.end(),
                     [](const PlacedTensor& tensor) { return tensor.at != tensor.arrives_at; });
}

void settle(const UnitLayout& layout, std::byte* buffer) {
  for (const PlacedTensor& tensor : layout.tensors) {
    if (tensor.at == tensor.arrives_at) continue;
    std::memmove(buffer + tensor.at, buffer + tensor.arrives_at, tensor.bytes);
  }
}

UnitLayout layout_unit(const ModelDescription& model, const Checkpoint& checkpoint,
                       const WeightUnit& unit) {
  std::vector<Piece> pieces;
  for (const TensorSpec& spec : unit_tensors(model, unit)) {
    pieces.push_back({spec.role, &checked_entry(checkpoint, spec)});
  }
  std::sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) {
    return std::pair(a.entry->shard, a.entry->offset) < std::pair(b.entry->shard, b.entry->offset);
  });

  UnitLayout layout;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const TensorEntry& entry = *pieces[i].entry;
    const AlignedRange range = aligned_range(entry.offset, entry.bytes);
    if (!layout.reads.empty() && joins(layout.reads.back(), pieces[i - 1], pieces[i])) {
      UnitRead& read = layout.reads.back();
      read.bytes = std::max(read.bytes, range.offset + range.bytes - read.offset);
    } else {
      layout.reads.push_back({.shard = entry.shard,
                              .offset = range.offset,
                              .bytes = range.bytes,
                              .at = layout.buffer_bytes});
    }
    const UnitRead& read = layout.reads.back();
    const uint64_t arrives_at = read.at + entry.offset - read.offset;
    layout.tensors.push_back({.role = pieces[i].role,
                              .dtype = entry.dtype,
                              .shape = entry.shape,
                              .bytes = entry.bytes,
                              .arrives_at = arrives_at,
                              .at = arrives_at - arrives_at % element_bytes(entry),
                              .packed_at = layout.packed_bytes});
    layout.own_bytes += entry.bytes;
    layout.packed_bytes +=
        (entry.bytes + kPackedAlignment - 1) / kPackedAlignment * kPackedAlignment;
    layout.buffer_bytes = read.at + read.bytes;
  }
  for (const UnitRead& read : layout.reads) layout.read_bytes += read.bytes;
  return layout;
}

UnitLayouts::UnitLayouts(const ModelDescription& model, const Checkpoint& checkpoint) {
  for (size_t kind = 0; kind < kUnitKinds; ++kind) {
    for (const WeightUnit& unit : units_of(model, static_cast<UnitKind>(kind))) {
      UnitLayout layout = layout_unit(model, checkpoint, unit);
      ++units_[kind];
      buffer_bytes_[kind] = std::max(buffer_bytes_[kind], layout.buffer_bytes);
      packed_bytes_[kind] = std::max(packed_bytes_[kind], layout.packed_bytes);
      layouts_.emplace(unit, std::move(layout));
    }
  }
}

}  // namespace klotski
