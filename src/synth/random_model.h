#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "model/description.h"
#include "model/tensors.h"
#include "synth/synth.h"
#include "synth/tokenizer_files.h"

namespace klotski {

// All of a random model but its weights.
struct RandomModel {
  ModelDescription description;
  double share = 0.0;                            // see SynthOptions
  std::vector<TokenizerFiles::NamedText> files;  // configuration and tokenizer
};

// By shape, seed, share, type and tokenizer of the options. Refuses (usage) what cannot be.
RandomModel random_model(const SynthOptions& options);

void write_files(const RandomModel& model, const std::filesystem::path& folder);

struct ModelTensor {
  TensorSpec spec;
  LayerId layer;
  uint64_t elements = 0;
};

// In the order of use, the parts of an expert side by side: a reader goes through them once.
std::vector<ModelTensor> tensors_in_order(const ModelDescription& model);

}  // namespace klotski
