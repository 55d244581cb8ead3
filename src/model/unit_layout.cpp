#include "model/unit_layout.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <tuple>
#include <utility>

#include "memory/alignment.h"
#include "model/stored_tensors.h"
#include "tensor/format.h"

namespace klotski {

namespace {

// A part of a unit in a file, and the alignment of its first byte in memory.
struct FilePart {
  StoredRange range;
  uint64_t alignment = 1;
  std::optional<StoredRange> joined{};  // a side tensor that it is joined with
  DType format = DType::F32;            // the format that says how

  bool aligned_in_file() const { return range.offset % alignment == 0; }
};

constexpr uint64_t kPackedAlignment = 256;  // bytes; devices load such tensors fastest

// Whether a part can share the read before it: it begins within or right after that read's bytes,
// and neither has to be moved (moving uses the bytes in front of a part).
bool joins(const UnitRead& read, const FilePart& previous, const FilePart& part) {
  return part.range.shard == read.shard && previous.aligned_in_file() && part.aligned_in_file() &&
         !previous.joined && part.range.offset <= read.offset + read.bytes;
}

// The parts of all tensors in the order of the files. A part that several tensors share is listed
// once, with the strictest of their alignments.
std::vector<FilePart> parts_in_order(const std::vector<StoredTensor>& tensors) {
  std::vector<FilePart> parts;
  for (const StoredTensor& tensor : tensors) {
    const WeightFormat& format = format_of(tensor.dtype);
    if (format.join) {
      parts.push_back({.range = tensor.numbers,
                       .alignment = format_of(format.becomes).alignment,
                       .joined = tensor.sides.at(0),
                       .format = tensor.dtype});
      continue;
    }
    parts.push_back({tensor.numbers, format.alignment});
    for (size_t i = 0; i < tensor.sides.size(); ++i) {
      parts.push_back({tensor.sides[i], format_of(format.sides[i].dtype).alignment});
    }
  }
  const auto key = [](const FilePart& part) {
    return std::tuple(part.range.shard, part.range.offset, part.range.bytes);
  };
  std::stable_sort(parts.begin(), parts.end(), [&](const FilePart& a, const FilePart& b) {
    return std::pair(key(a), b.alignment) < std::pair(key(b), a.alignment);
  });
  parts.erase(std::unique(parts.begin(), parts.end(),
                          [&](const FilePart& a, const FilePart& b) { return key(a) == key(b); }),
              parts.end());
  return parts;
}

// Adds a read for bytes of a file behind all others.
UnitRead& add_read(UnitLayout& layout, const StoredRange& stored) {
  const AlignedRange range = aligned_range(stored.offset, stored.bytes);
  layout.reads.push_back({.shard = stored.shard,
                          .offset = range.offset,
                          .bytes = range.bytes,
                          .at = layout.buffer_bytes});
  layout.buffer_bytes += range.bytes;
  return layout.reads.back();
}

// Places a side tensor behind the part that it is joined with, so that there is room for both.
JoinedSide place_joined(UnitLayout& layout, const FilePart& part) {
  const StoredRange& stored = *part.joined;
  const UnitRead& read = add_read(layout, stored);
  return {.bytes = stored.bytes,
          .arrives_at = read.at + stored.offset - read.offset,
          .turns = stored.turns,
          .format = part.format};
}

void place(UnitLayout& layout, const std::vector<FilePart>& parts) {
  for (size_t i = 0; i < parts.size(); ++i) {
    const StoredRange& stored = parts[i].range;
    if (!layout.reads.empty() && joins(layout.reads.back(), parts[i - 1], parts[i])) {
      const AlignedRange range = aligned_range(stored.offset, stored.bytes);
      UnitRead& read = layout.reads.back();
      read.bytes = std::max(read.bytes, range.offset + range.bytes - read.offset);
      layout.buffer_bytes = read.at + read.bytes;
    } else {
      add_read(layout, stored);
    }
    const UnitRead& read = layout.reads.back();
    const uint64_t arrives_at = read.at + stored.offset - read.offset;
    PlacedPart& part =
        layout.parts.emplace_back(PlacedPart{.bytes = stored.bytes,
                                             .arrives_at = arrives_at,
                                             .at = arrives_at - arrives_at % parts[i].alignment,
                                             .packed_at = layout.packed_bytes,
                                             .turns = stored.turns});
    if (parts[i].joined) {
      part.joined = place_joined(layout, parts[i]);
      part.bytes += part.joined->bytes;
    }
    layout.own_bytes += part.bytes;
    layout.packed_bytes +=
        (part.bytes + kPackedAlignment - 1) / kPackedAlignment * kPackedAlignment;
  }
  for (const UnitRead& read : layout.reads) layout.read_bytes += read.bytes;
}

PlacedTensor placed(StoredTensor tensor, const std::vector<FilePart>& parts) {
  const auto index_of_part = [&](const StoredRange& range) {
    const auto part = std::find_if(parts.begin(), parts.end(),
                                   [&](const FilePart& one) { return one.range == range; });
    if (part == parts.end()) {
      fail(ErrorKind::internal, "two tensors are different parts of the same bytes");
    }
    return static_cast<size_t>(part - parts.begin());
  };
  PlacedTensor result{.role = tensor.spec.role,
                      .dtype = tensor.dtype,
                      .shape = std::move(tensor.spec.shape),
                      .part = index_of_part(tensor.numbers),
                      .first_byte = tensor.first_byte,
                      .first_row = tensor.first_row,
                      .sides = {}};
  const WeightFormat& format = format_of(tensor.dtype);
  if (format.join) {
    const int64_t columns = result.shape.at(1);
    result.dtype = format.becomes;
    result.first_byte = tensor.first_byte / static_cast<uint64_t>(format.row_bytes(columns)) *
                        static_cast<uint64_t>(bytes_per_row(format.becomes, columns));
    result.first_row = 0;
    return result;
  }
  for (const StoredRange& side : tensor.sides) result.sides.push_back(index_of_part(side));
  return result;
}

TensorView view_at(const UnitLayout& layout, const PlacedTensor& tensor, const std::byte* unit,
                   uint64_t PlacedPart::*place) {
  TensorView view{
      .data = nullptr, .dtype = tensor.dtype, .shape = tensor.shape, .first_row = tensor.first_row};
  if (unit == nullptr) return view;
  view.data = unit + layout.parts[tensor.part].*place + tensor.first_byte;
  for (size_t i = 0; i < tensor.sides.size(); ++i) {
    view.sides[i] = unit + layout.parts[tensor.sides[i]].*place;
  }
  return view;
}

}  // namespace

bool UnitLayout::must_settle() const {
  return std::any_of(parts.begin(), parts.end(), [](const PlacedPart& part) {
    return part.at != part.arrives_at || !part.turns.empty() || part.joined;
  });
}

uint64_t UnitLayout::bytes_of(const PlacedTensor& tensor) const {
  uint64_t bytes = parts[tensor.part].bytes;
  for (const size_t side : tensor.sides) bytes += parts[side].bytes;
  return bytes;
}

TensorView UnitLayout::view(const PlacedTensor& tensor, const std::byte* unit) const {
  return view_at(*this, tensor, unit, &PlacedPart::at);
}

TensorView UnitLayout::packed_view(const PlacedTensor& tensor, const std::byte* unit) const {
  return view_at(*this, tensor, unit, &PlacedPart::packed_at);
}

namespace {

// Moves bytes to where they are wanted, and turns them there.
void settle_bytes(std::byte* to, const std::byte* from, uint64_t bytes,
                  std::span<const Transposition> turns) {
  if (to != from) std::memmove(to, from, bytes);
  for (const Transposition& turn : turns) transpose(turn, to);
}

}  // namespace

void settle(const UnitLayout& layout, std::byte* buffer) {
  for (const PlacedPart& part : layout.parts) {
    std::byte* const to = buffer + part.at;
    const uint64_t side_bytes = part.joined ? part.joined->bytes : 0;
    const uint64_t bytes = part.bytes - side_bytes;
    settle_bytes(to, buffer + part.arrives_at, bytes, part.turns);
    if (!part.joined) continue;
    const JoinedSide& side = *part.joined;
    const WeightFormat& format = format_of(side.format);
    settle_bytes(to + bytes, buffer + side.arrives_at, side_bytes, side.turns);
    format.join(to, static_cast<int64_t>(bytes) / format.block_bytes);
  }
}

UnitLayout layout_unit(const ModelDescription& model, const TensorSource& source,
                       const WeightUnit& unit) {
  std::vector<StoredTensor> tensors;
  for (TensorSpec& spec : unit_tensors(model, unit)) {
    tensors.push_back(find_stored(source, unit.kind, std::move(spec), model.stated_formats));
  }
  std::sort(tensors.begin(), tensors.end(), [](const StoredTensor& a, const StoredTensor& b) {
    return std::tuple(a.numbers.shard, a.numbers.offset, a.first_byte) <
           std::tuple(b.numbers.shard, b.numbers.offset, b.first_byte);
  });
  const std::vector<FilePart> parts = parts_in_order(tensors);
  UnitLayout layout;
  place(layout, parts);
  for (StoredTensor& tensor : tensors) {
    layout.tensors.push_back(placed(std::move(tensor), parts));
  }
  return layout;
}

UnitLayouts::UnitLayouts(const ModelDescription& model, const TensorSource& source) {
  std::set<DType> formats;
  for (size_t kind = 0; kind < kUnitKinds; ++kind) {
    for (const WeightUnit& unit : units_of(model, static_cast<UnitKind>(kind))) {
      UnitLayout layout = layout_unit(model, source, unit);
      ++units_[kind];
      buffer_bytes_[kind] = std::max(buffer_bytes_[kind], layout.buffer_bytes);
      packed_bytes_[kind] = std::max(packed_bytes_[kind], layout.packed_bytes);
      for (const PlacedTensor& tensor : layout.tensors) {
        formats.insert(tensor.dtype);
        if (unit.kind != UnitKind::expert) continue;
        experts_can_be_cut_ = experts_can_be_cut_ && format_of(tensor.dtype).can_be_cut();
      }
      layouts_.emplace(unit, std::move(layout));
    }
  }
  formats_.assign(formats.begin(), formats.end());
}

}  // namespace klotski
