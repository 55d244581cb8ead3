#include "base/bytes.h"

#include <fmt/format.h>

#include <array>
#include <cctype>

#include "base/numbers.h"

namespace klotski {

std::string format_bytes(uint64_t bytes) {
  if (bytes < kKiB) return fmt::format("{} B", bytes);
  const auto value = static_cast<double>(bytes);
  if (bytes < kMiB) return fmt::format("{:.1f} KiB", value / kKiB);
  if (bytes < kGiB) return fmt::format("{:.1f} MiB", value / kMiB);
  return fmt::format("{:.2f} GiB", value / kGiB);
}

std::optional<uint64_t> parse_bytes(std::string_view text) {
  struct Unit {
    std::string_view name;
    double bytes;
  };
  constexpr std::array<Unit, 10> kUnits = {{{"", 1},
                                            {"B", 1},
                                            {"KB", 1e3},
                                            {"MB", 1e6},
                                            {"GB", 1e9},
                                            {"TB", 1e12},
                                            {"KiB", kKiB},
                                            {"MiB", kMiB},
                                            {"GiB", kGiB},
                                            {"TiB", 1024.0 * kGiB}}};
  size_t digits = 0;
  while (digits < text.size() &&
         (std::isdigit(static_cast<unsigned char>(text[digits])) != 0 || text[digits] == '.')) {
    ++digits;
  }
  const std::optional<double> number = parse_double(text.substr(0, digits));
  std::string_view name = text.substr(digits);
  if (!name.empty() && name.front() == ' ') name.remove_prefix(1);
  for (const Unit& unit : kUnits) {
    if (!number || unit.name != name) continue;
    const double bytes = *number * unit.bytes;
    if (bytes < 9.2e18) return static_cast<uint64_t>(bytes);
  }
  return std::nullopt;
}

bool multiply_checked(uint64_t a, uint64_t b, uint64_t* result) {
  return !__builtin_mul_overflow(a, b, result);
}

bool add_checked(uint64_t a, uint64_t b, uint64_t* result) {
  return !__builtin_add_overflow(a, b, result);
}

}  // namespace klotski
