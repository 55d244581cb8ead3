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

// A place of many bytes below the memory that is computed in. Several threads at once, as long as
// they keep to different bytes; reads are made by one of them and writes by one.
class SpillStore {
 public:
  virtual ~SpillStore() = default;

  // All of them, in whatever order; where one fails, none is known to have been made.
  virtual void write(std::span<const SpillWrite> pieces) = 0;
  virtual void read(std::span<const SpillRead> pieces) const = 0;
  // Where the program may use it as memory of its own; null where it cannot.
  virtual std::byte* memory() const { return nullptr; }
};

}  // namespace klotski
