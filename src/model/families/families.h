#pragma once

// One entry a model family: how its config.json becomes a description, and what its tensors are
// called. This folder is the only place where a model's name may be tested.

#include <span>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "model/description.h"

namespace klotski {

struct Family {
  std::string_view model_type;  // as in config.json
  ModelDescription (*describe)(const JsonFields& config);
  std::span<const TensorPattern> tensor_names;
};

std::span<const Family> families();

extern const Family kMixtral;
extern const Family kQwen2Moe;
extern const Family kQwen3Moe;
extern const Family kOlmoe;

// A field that is one token id or a list of them; absent gives none.
std::vector<TokenId> token_ids(const JsonFields& config, std::string_view key, int64_t vocabulary);

}  // namespace klotski
