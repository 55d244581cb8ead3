#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "model/units.h"
#include "tensor/dtype.h"
#include "weights/checkpoint.h"

namespace klotski {

// Bytes of one file that go to one place of a unit's buffer. Offset, size and place suit O_DIRECT;
// the range may run past the end of the file.
struct UnitRead {
  uint32_t shard = 0;
  uint64_t offset = 0;
  uint64_t bytes = 0;
  uint64_t at = 0;  // in the buffer
};

struct PlacedTensor {
  Role role;
  DType dtype;
  Shape shape;
  uint64_t bytes = 0;
  uint64_t arrives_at = 0;  // byte of the buffer where reading leaves it
  uint64_t at = 0;          // where the kernels want it: aligned to its elements or rows
  uint64_t packed_at = 0;   // where it lies in a device's memory, other tensors beside it
};

// How a unit lies in the checkpoint's files, and in one buffer of the compute tier.
struct UnitLayout {
  std::vector<UnitRead> reads;
  std::vector<PlacedTensor> tensors;
  uint64_t read_bytes = 0;
  uint64_t buffer_bytes = 0;
  uint64_t own_bytes = 0;     // of the tensors themselves
  uint64_t packed_bytes = 0;  // of a buffer of a device

  // Whether a tensor has to be moved into place after it was read: its file does not align it.
  bool must_settle() const;
};

// Moves the tensors that arrived at places the kernels cannot read to where these want them.
void settle(const UnitLayout& layout, std::byte* buffer);

// Refuses (bad_model) a tensor that is missing or has another shape or type than the model's. Those
// that may be compact are, where the checkpoint has them so (model/compact_tensors.h).
UnitLayout layout_unit(const ModelDescription& model, const Checkpoint& checkpoint,
                       const WeightUnit& unit);

// The layouts of all units of a model.
class UnitLayouts {
 public:
  UnitLayouts(const ModelDescription& model, const Checkpoint& checkpoint);

  const UnitLayout& of(const WeightUnit& unit) const { return layouts_.at(unit); }
  const std::map<WeightUnit, UnitLayout>& all() const { return layouts_; }
  int64_t units(UnitKind kind) const { return units_[index_of(kind)]; }
  // A buffer that can hold any unit of the kind; of a device's memory, packed.
  uint64_t buffer_bytes(UnitKind kind) const { return buffer_bytes_[index_of(kind)]; }
  uint64_t packed_bytes(UnitKind kind) const { return packed_bytes_[index_of(kind)]; }
  bool any_compact() const { return any_compact_; }

 private:
  std::map<WeightUnit, UnitLayout> layouts_;
  std::array<int64_t, kUnitKinds> units_{};
  std::array<uint64_t, kUnitKinds> buffer_bytes_{};
  std::array<uint64_t, kUnitKinds> packed_bytes_{};
  bool any_compact_ = false;  // tensor of BF16_COMPACT
};

}  // namespace klotski
