#include "model/unit_layout.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "memory/alignment.h"
#include "model/compact_tensors.h"
#include "tensor/compact.h"

namespace klotski {

namespace {

// A tensor of a unit, and how the checkpoint has it.
struct Piece {
  TensorSpec spec;
  DType dtype;  // of its numbers
  const TensorEntry* entry;
};

[[noreturn]] void refuse(const Checkpoint& checkpoint, std::string_view name,
                         const std::string& why) {
  fail(ErrorKind::bad_model, "{}: tensor {}: {}", path_in_quotes(checkpoint.folder()),
       in_quotes(name), why);
}

Piece plain_piece(const Checkpoint& checkpoint, TensorSpec spec) {
  const TensorEntry& entry = checkpoint.require(spec.name);
  if (entry.shape != spec.shape) {
    refuse(checkpoint, spec.name,
           fmt::format("config.json implies shape {}, found {}", format_shape(spec.shape),
                       format_shape(entry.shape)));
  }
  const bool readable =
      entry.dtype == DType::F32 || entry.dtype == DType::F16 || entry.dtype == DType::BF16;
  if (!readable) {
    refuse(checkpoint, spec.name,
           fmt::format("expected type F32, F16 or BF16, found {}", dtype_name(entry.dtype)));
  }
  return {.spec = std::move(spec), .dtype = entry.dtype, .entry = &entry};
}

Piece compact_piece(const Checkpoint& checkpoint, UnitKind kind, TensorSpec spec,
                    const TensorEntry& entry) {
  uint64_t bytes = 0;
  if (!may_be_compact(kind)) {
    refuse(checkpoint, entry.name,
           fmt::format("only matrices of experts and dense feed-forward parts may be compact; "
                       "expected {} of type F32, F16 or BF16",
                       in_quotes(spec.name)));
  }
  if (!byte_count(spec.shape, DType::BF16_COMPACT, &bytes)) {
    refuse(checkpoint, entry.name,
           fmt::format("config.json implies shape {}, which cannot be compact; expected {}",
                       format_shape(spec.shape), in_quotes(spec.name)));
  }
  const NewTensor expected = tensor_in_file(spec, DType::BF16_COMPACT);
  if (entry.dtype != expected.dtype || entry.shape != expected.shape) {
    refuse(checkpoint, entry.name,
           fmt::format("config.json implies {} of shape {}, found {} of shape {}",
                       dtype_name(expected.dtype), format_shape(expected.shape),
                       dtype_name(entry.dtype), format_shape(entry.shape)));
  }
  return {.spec = std::move(spec), .dtype = DType::BF16_COMPACT, .entry = &entry};
}

// Refuses a tensor whose shape or type is not what the description requires.
Piece checked_piece(const Checkpoint& checkpoint, UnitKind kind, TensorSpec spec) {
  const std::string compact_name = spec.name + std::string(kCompactSuffix);
  const TensorEntry* compact = checkpoint.find(compact_name);
  if (compact == nullptr) return plain_piece(checkpoint, std::move(spec));
  if (checkpoint.find(spec.name) != nullptr) {
    refuse(checkpoint, spec.name,
           fmt::format("expected it once, found {} as well; remove one of them",
                       in_quotes(compact_name)));
  }
  return compact_piece(checkpoint, kind, std::move(spec), *compact);
}

// What a tensor's place in memory must be a multiple of.
uint64_t alignment_of(DType dtype) {
  return dtype == DType::BF16_COMPACT ? kCompactAlignment
                                      : static_cast<uint64_t>(bytes_per_element(dtype));
}

bool is_aligned_in_file(const Piece& piece) {
  return piece.entry->offset % alignment_of(piece.dtype) == 0;
}

constexpr uint64_t kPackedAlignment = 256;  // of each tensor: what devices load fastest

// Whether a piece can share the read before it: it begins within or right after what that read
// brings, and neither has to be moved (moving uses the bytes in front of a tensor).
bool joins(const UnitRead& read, const Piece& previous, const Piece& piece) {
  return piece.entry->shard == read.shard && is_aligned_in_file(previous) &&
         is_aligned_in_file(piece) && piece.entry->offset <= read.offset + read.bytes;
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
  for (TensorSpec& spec : unit_tensors(model, unit)) {
    pieces.push_back(checked_piece(checkpoint, unit.kind, std::move(spec)));
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
    layout.tensors.push_back({.role = pieces[i].spec.role,
                              .dtype = pieces[i].dtype,
                              .shape = std::move(pieces[i].spec.shape),
                              .bytes = entry.bytes,
                              .arrives_at = arrives_at,
                              .at = arrives_at - arrives_at % alignment_of(pieces[i].dtype),
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
      any_compact_ |= std::any_of(
          layout.tensors.begin(), layout.tensors.end(),
          [](const PlacedTensor& tensor) { return tensor.dtype == DType::BF16_COMPACT; });
      layouts_.emplace(unit, std::move(layout));
    }
  }
}

}  // namespace klotski
