#include "base/bytes.h"

#include <array>
#include <cmath>

#include "base/error.h"
#include "base/numbers.h"

namespace klotski {

std::string format_bytes(uint64_t bytes) {
  if (bytes < kKiB) return fmt::format("{} B", bytes);
  const auto value = static_cast<double>(bytes);
  if (bytes < kMiB) return fmt::format("{:.1f} KiB", value / kKiB);
  if (bytes < kGiB) return fmt::format("{:.1f} MiB", value / kMiB);
  return fmt::format("{:.2f} GiB", value / kGiB);
}

uint64_t parse_bytes(std::string_view text, std::string_view what) {
  struct Unit {
    std::string_view name;
    double bytes;
  };
  static constexpr std::array<Unit, 9> kUnits = {{{"KiB", 1024.0},
                                                  {"MiB", 1048576.0},
                                                  {"GiB", 1073741824.0},
                                                  {"TiB", 1099511627776.0},
                                                  {"KB", 1e3},
                                                  {"MB", 1e6},
                                                  {"GB", 1e9},
                                                  {"TB", 1e12},
                                                  {"B", 1.0}}};
  std::string_view number = text;
  double scale = 1.0;
  for (const Unit& unit : kUnits) {
    if (text.ends_with(unit.name)) {
      number = text.substr(0, text.size() - unit.name.size());
      scale = unit.bytes;
      break;
    }
  }
  const auto value = parse_double(number);
  if (!value || *value < 0 || *value * scale >= 9.2e18) {
    fail(ErrorKind::usage, "{}: expected a size such as 24GiB, 512MiB or 8GB, found {}", what,
         in_quotes(text));
  }
  return static_cast<uint64_t>(std::llround(*value * scale));
}

bool multiply_checked(uint64_t a, uint64_t b, uint64_t* result) {
  return !__builtin_mul_overflow(a, b, result);
}

bool add_checked(uint64_t a, uint64_t b, uint64_t* result) {
  return !__builtin_add_overflow(a, b, result);
}

}  // namespace klotski
