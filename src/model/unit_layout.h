#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "model/units.h"
#include "tensor/tensor_view.h"
#include "tensor/transposition.h"
#include "weights/tensor_source.h"

namespace klotski {

// Bytes of one file that go to one place of a unit's buffer. Offset, size and place suit O_DIRECT;
// the range may run past the end of the file.
struct UnitRead {
  uint32_t shard = 0;
  uint64_t offset = 0;
  uint64_t bytes = 0;
  uint64_t at = 0;  // byte of the buffer
};

// Bytes of a side tensor that a part is joined with once both are read (WeightFormat::join).
struct JoinedSide {
  uint64_t bytes = 0;
  uint64_t arrives_at = 0;  // byte of the buffer, not in front of the part's end
  std::vector<Transposition> turns;
  DType format;  // the format of files
};

// Bytes of a file in a unit's buffer: a stored tensor, or a slice of one. They move as one piece.
struct PlacedPart {
  uint64_t bytes = 0;       // a joined side tensor's bytes among them
  uint64_t arrives_at = 0;  // byte of the buffer where reading leaves it
  uint64_t at = 0;          // byte where the kernels want it: aligned to its elements or rows
  uint64_t packed_at = 0;   // byte where it lies in a device's memory, packed with the other parts
  std::vector<Transposition> turns = {};  // transpositions that it needs there, in this order
  std::optional<JoinedSide> joined = {};
};

// A tensor of a unit. Tensors whose rows alternate in the file share a part.
struct PlacedTensor {
  Role role;
  DType dtype;
  Shape shape;
  size_t part = 0;            // index in UnitLayout::parts of the part with its numbers
  uint64_t first_byte = 0;    // byte of its first row in the part
  int64_t first_row = 0;      // row of the side tensors, which may have other rows too
  std::vector<size_t> sides;  // indices in UnitLayout::parts, in the format's order
};

// How a unit lies in the model's files, and in one buffer of the compute tier.
struct UnitLayout {
  std::vector<UnitRead> reads;
  std::vector<PlacedPart> parts;
  std::vector<PlacedTensor> tensors;
  uint64_t read_bytes = 0;
  uint64_t buffer_bytes = 0;
  uint64_t own_bytes = 0;     // bytes of the parts themselves
  uint64_t packed_bytes = 0;  // bytes of a device's buffer

  // Whether a part has to be moved into place after it was read: its file does not align it, has
  // its rows in another order, or has it in two tensors.
  bool must_settle() const;
  // The part with a tensor's numbers, and the bytes of that and its side tensors.
  const PlacedPart& numbers_of(const PlacedTensor& tensor) const { return parts[tensor.part]; }
  uint64_t bytes_of(const PlacedTensor& tensor) const;
  // A tensor of a unit whose buffer begins at `unit`, which is settled, or as a device has it;
  // null: nowhere, only the form of the view counts.
  TensorView view(const PlacedTensor& tensor, const std::byte* unit) const;
  TensorView packed_view(const PlacedTensor& tensor, const std::byte* unit) const;
};

// Moves the parts that arrived at places the kernels cannot read to where these want them, gives
// rows the order that kernels read, and joins parts with their side tensors.
void settle(const UnitLayout& layout, std::byte* buffer);

// The layout of a unit. Refuses (bad_model) tensors that find_stored() refuses.
UnitLayout layout_unit(const ModelDescription& model, const TensorSource& source,
                       const WeightUnit& unit);

// The layouts of all units of a model.
class UnitLayouts {
 public:
  UnitLayouts(const ModelDescription& model, const TensorSource& source);

  const UnitLayout& of(const WeightUnit& unit) const { return layouts_.at(unit); }
  const std::map<WeightUnit, UnitLayout>& all() const { return layouts_; }
  int64_t units(UnitKind kind) const { return units_[index_of(kind)]; }
  // Bytes of a buffer that can hold any unit of the kind, and of a packed one in a device's memory.
  uint64_t buffer_bytes(UnitKind kind) const { return buffer_bytes_[index_of(kind)]; }
  uint64_t packed_bytes(UnitKind kind) const { return packed_bytes_[index_of(kind)]; }
  // The types that tensors have, each once, ascending.
  std::span<const DType> formats() const { return formats_; }
  // Whether matrices of all experts can be cut at any multiple of kCutColumns.
  bool experts_can_be_cut() const { return experts_can_be_cut_; }

 private:
  std::map<WeightUnit, UnitLayout> layouts_;
  std::array<int64_t, kUnitKinds> units_{};
  std::array<uint64_t, kUnitKinds> buffer_bytes_{};
  std::array<uint64_t, kUnitKinds> packed_bytes_{};
  std::vector<DType> formats_;
  bool experts_can_be_cut_ = true;
};

}  // namespace klotski
