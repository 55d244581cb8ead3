#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace klotski {

inline constexpr uint64_t kKiB = 1024;
inline constexpr uint64_t kMiB = 1024 * kKiB;
inline constexpr uint64_t kGiB = 1024 * kMiB;

// "17.2 MiB"; exact bytes below one KiB.
std::string format_bytes(uint64_t bytes);

// A size as users write it: "3GiB", "1.5 GB", "512MiB", "4096" (bytes). Units: B, KB, MB, GB, TB by
// thousands and KiB, MiB, GiB, TiB by 1024. Nothing where it is none or does not fit 64 bits.
std::optional<uint64_t> parse_bytes(std::string_view text);

// a * b and a + b, or false where the result does not fit 64 bits: sizes from files are hostile.
[[nodiscard]] bool multiply_checked(uint64_t a, uint64_t b, uint64_t* result);
[[nodiscard]] bool add_checked(uint64_t a, uint64_t b, uint64_t* result);

}  // namespace klotski
