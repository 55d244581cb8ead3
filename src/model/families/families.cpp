#include "model/families/families.h"

#include <array>

namespace klotski {

std::span<const Family> families() {
  static const std::array<Family, 4> kFamilies = {kMixtral, kOlmoe, kQwen2Moe, kQwen3Moe};
  return kFamilies;
}

}  // namespace klotski
