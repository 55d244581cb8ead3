#pragma once

// Helpers that the tests of this folder share.

#include <string>

#include "model/config.h"
#include "probe/random_weights.h"
#include "weights/checkpoint.h"

namespace klotski::testing {

struct TinyModel {
  explicit TinyModel(const std::string& name)
      : folder(std::string(KLOTSKI_TEST_DATA) + "/models/" + name),
        description(read_config(folder)),
        checkpoint(Checkpoint::open(folder)) {}

  StoredTypes types() const { return stored_types(description, checkpoint); }

  std::string folder;
  ModelDescription description;
  Checkpoint checkpoint;
};

// A layer as large models have it, alone.
inline ModelDescription large_layer() {
  ModelDescription model = TinyModel("qwen2_moe").description;
  model.hidden = 2048;
  model.vocabulary = 100000;
  model.layers.resize(1);
  model.layers[0].attention.grouped_heads().query_heads = 32;
  model.layers[0].attention.grouped_heads().kv_heads = 8;
  model.layers[0].attention.grouped_heads().head_dim = 128;
  model.layers[0].feed_forward.width = 8192;
  model.layers[0].feed_forward.shared->width = 8192;
  return model;
}

inline StoredTypes all_of_type(DType type) {
  StoredTypes types;
  types.fill(type);
  return types;
}

}  // namespace klotski::testing
