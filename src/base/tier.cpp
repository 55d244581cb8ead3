#include "base/tier.h"

#include <string_view>

namespace klotski {

namespace {

std::string_view kind_name(TierKind kind) {
  switch (kind) {
    case TierKind::compute:
      return "compute";
    case TierKind::host:
      return "host";
    case TierKind::remote:
      return "remote";
    case TierKind::disk:
      return "disk";
  }
  return "?";
}

}  // namespace

std::string tier_name(TierId tier) {
  std::string name(kind_name(tier.kind));
  if (tier.number > 0) name += " " + std::to_string(tier.number);
  return name;
}

}  // namespace klotski
