#pragma once

// What the tests of this folder share.

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

inline StoredTypes all_of_type(DType type) {
  StoredTypes types;
  types.fill(type);
  return types;
}

}  // namespace klotski::testing
