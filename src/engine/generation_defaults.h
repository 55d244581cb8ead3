#pragma once

#include <filesystem>

#include "engine/sampling.h"

namespace klotski {

// The sampling that a model's generation_config.json suggests; greedy where it has none or does not
// say `do_sample: true`, but with its repetition penalty.
SamplingOptions suggested_sampling(const std::filesystem::path& model_folder);

}  // namespace klotski
