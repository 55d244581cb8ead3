#include "model/families/families.h"

#include <array>

namespace klotski {

std::span<const Family> families() {
  static const std::array<Family, 9> kFamilies = {kDeepseekV2, kDeepseekV3, kGptOss,
                                                  kKimiK2,     kLlama4Text, kMixtral,
                                                  kOlmoe,      kQwen2Moe,   kQwen3Moe};
  return kFamilies;
}

}  // namespace klotski
