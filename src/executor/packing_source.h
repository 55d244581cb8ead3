#pragma once

#include <memory>
#include <optional>
#include <span>

#include "base/error.h"
#include "memory/arena.h"
#include "memory/tier.h"
#include "model/description.h"
#include "model/unit_source.h"

namespace klotski {

// Numbers of a model that the packed format cannot hold, found while they were packed: the model
// has to be used as it is in its files.
class NotPackable : public Error {
 public:
  explicit NotPackable(const std::string& message) : Error(ErrorKind::bad_model, message) {}
};

// Units whose matrices are plain numbers in `inner` and packed in memory (packed_in_memory() in
// model/compact_model.h). A unit is read into a buffer of this source and packed from there, rows
// shared out to the threads of the CPU.
class PackingSource : public UnitSource {
 public:
  // `plain` says how `inner` has the tensors, and is not needed later.
  PackingSource(const ModelDescription& model, const TensorSource& plain,
                std::shared_ptr<UnitSource> inner);

  // Refuses (NotPackable) a row that cannot be packed.
  void read(const WeightUnit& unit, const UnitLayout& layout, std::span<std::byte> buffer,
            const Processor& cpu) override;
  uint64_t memory_bytes() const override { return plain_ ? 0 : tier_.limit_bytes(); }

 private:
  UnitLayouts layouts_;  // layouts of the plain units
  std::shared_ptr<UnitSource> inner_;
  Tier tier_;
  std::optional<BufferPool> plain_;  // one plain unit; taken with the first read
};

}  // namespace klotski
