#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "model/description.h"
#include "model/tensors.h"
#include "model/units.h"
#include "synth/synth.h"
#include "synth/tokenizer_files.h"

namespace klotski {

// All of a random model but its weights.
struct RandomModel {
  ModelDescription description;
  double share = 0.0;                            // see SynthOptions
  DType dtype = DType::BF16;                     // see SynthOptions
  std::vector<TokenizerFiles::NamedText> files;  // configuration and tokenizer
};

// A model by shape, seed, share, type and tokenizer of the options. Refuses (usage) options that no
// model can have.
RandomModel random_model(const SynthOptions& options);

void write_files(const RandomModel& model, const std::filesystem::path& folder);

struct ModelTensor {
  TensorSpec spec;
  LayerId layer;
  DType dtype = DType::BF16;
};

// The type of a tensor of a unit in a model of type `dtype`.
DType type_of(const TensorSpec& spec, UnitKind kind, DType dtype);

// Stored tensors in the order of use, the parts of an expert one after the other: a reader goes
// through them once. The spec of one that holds several matrices is its first slice. Their types
// are those of a model of type `dtype`.
std::vector<ModelTensor> tensors_in_order(const ModelDescription& model, DType dtype);

// Bytes of all tensors_in_order(), without a list of them, which may be too long.
uint64_t count_weight_bytes(const ModelDescription& model, DType dtype);

}  // namespace klotski
