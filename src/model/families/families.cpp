#include "model/families/families.h"

#include <array>

namespace klotski {

std::span<const Family> families() {
  static const std::array<Family, 6> kFamilies = {kGptOss, kLlama4Text, kMixtral,
                                                  kOlmoe,  kQwen2Moe,   kQwen3Moe};
  return kFamilies;
}

}  // namespace klotski
