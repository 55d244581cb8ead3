#pragma once

#include <filesystem>

#include "engine/sampling.h"

namespace klotski {

// The sampling that a model's generation_config.json suggests; greedy where it has none or does not
// say `do_sample: true`, with its repetition penalty all the same.
SamplingOptions suggested_sampling(const std::filesystem::path& model_folder);

}  // namespace klotski
