#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace klotski {

// A place of many bytes below the memory that is computed in. Several threads at once, as long as
// they keep to different bytes; reads are made by one of them and writes by one.
class SpillStore {
 public:
  virtual ~SpillStore() = default;

  virtual void write(uint64_t offset, std::span<const std::byte> data) = 0;
  virtual void read(uint64_t offset, std::span<std::byte> out) const = 0;
  // Where the program may use it as memory of its own; null where it cannot.
  virtual std::byte* memory() const { return nullptr; }
  // Nothing is sure to have arrived before these return.
  virtual void finish_writes() {}
  virtual void finish_reads() const {}
};

}  // namespace klotski
