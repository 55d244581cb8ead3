#include "base/tier.h"

#include <array>
#include <limits>

namespace klotski {

namespace {

constexpr std::array<std::string_view, 4> kTierKindNames = {"compute", "host", "remote", "disk"};

}  // namespace

std::string tier_name(TierId tier) {
  std::string name(kTierKindNames[static_cast<size_t>(tier.kind)]);
  if (tier.number > 0) name += " " + std::to_string(tier.number);
  return name;
}

std::optional<TierId> tier_named(std::string_view name) {
  for (size_t kind = 0; kind < kTierKindNames.size(); ++kind) {
    if (!name.starts_with(kTierKindNames[kind])) continue;
    for (int number = 0; number <= std::numeric_limits<uint8_t>::max(); ++number) {
      const TierId tier{static_cast<TierKind>(kind), static_cast<uint8_t>(number)};
      if (tier_name(tier) == name) return tier;
    }
  }
  return std::nullopt;
}

}  // namespace klotski
