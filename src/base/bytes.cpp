#include "base/bytes.h"

#include <fmt/format.h>

namespace klotski {

std::string format_bytes(uint64_t bytes) {
  if (bytes < kKiB) return fmt::format("{} B", bytes);
  const auto value = static_cast<double>(bytes);
  if (bytes < kMiB) return fmt::format("{:.1f} KiB", value / kKiB);
  if (bytes < kGiB) return fmt::format("{:.1f} MiB", value / kMiB);
  return fmt::format("{:.2f} GiB", value / kGiB);
}

bool multiply_checked(uint64_t a, uint64_t b, uint64_t* result) {
  return !__builtin_mul_overflow(a, b, result);
}

bool add_checked(uint64_t a, uint64_t b, uint64_t* result) {
  return !__builtin_add_overflow(a, b, result);
}

}  // namespace klotski
