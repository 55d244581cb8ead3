#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "kernels/ops.h"
#include "memory/arena.h"

namespace klotski {

// Memory that operations read weights from, accounted in a tier: the program's comes as a run's
// does, a device's from the operations.
class OpsArena {
 public:
  OpsArena(Tier& tier, const Processor& ops, std::string_view kind, uint64_t bytes);
  ~OpsArena();
  OpsArena(OpsArena&& other) noexcept;
  OpsArena& operator=(OpsArena&&) = delete;

  std::span<std::byte> bytes() const { return bytes_; }
  // See klotski::fill_random; `bytes` is a part of this.
  void fill_random(std::span<std::byte> bytes, DType type) const;

 private:
  const Processor& ops_;
  std::optional<Arena> program_;
  Reservation reservation_;  // reserved bytes of a device's memory
  std::span<std::byte> bytes_;
};

}  // namespace klotski
