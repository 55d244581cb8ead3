#include "model/families/families.h"

#include <array>

namespace klotski {

std::span<const Family> families() {
  static const std::array kFamilies = {kArctic,     kDbrx,      kDeepseekV2, kDeepseekV3, kErnieMoe,
                                       kGlm4Moe,    kGptOss,    kGraniteMoe, kHunyuanMoe, kKimiK2,
                                       kLlama4Text, kMinimaxM2, kMixtral,    kNllbMoe,    kOlmoe,
                                       kPhiMoe,     kQwen2Moe,  kQwen3Moe,   kQwen3Next,  kSwitch};
  return kFamilies;
}

}  // namespace klotski
