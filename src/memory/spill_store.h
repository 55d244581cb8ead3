#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace klotski {

struct SpillWrite {
  uint64_t offset = 0;
  std::span<const std::byte> from;
};
struct SpillRead {
  uint64_t offset = 0;
  std::span<std::byte> to;
};

// A memory that is slower and larger than the one that is computed in. Several threads may use it
// at once, as long as they keep to different bytes; one of them reads and one writes.
class SpillStore {
 public:
  virtual ~SpillStore() = default;

  // Writes or reads all pieces, in any order; where one write fails, none is known to have been
  // made.
  virtual void write(std::span<const SpillWrite> pieces) = 0;
  virtual void read(std::span<const SpillRead> pieces) const = 0;
  // The store as memory that the program may use; null where it is none.
  virtual std::byte* memory() const { return nullptr; }
};

}  // namespace klotski
