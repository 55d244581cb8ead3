#pragma once

// What the engine's tests share: the tiny models of the test data.

#include <memory>
#include <string>

#include "engine/resident_model.h"
#include "model/config.h"
#include "weights/checkpoint.h"

namespace klotski {

inline ResidentModel load_model(const std::string& folder) {
  return ResidentModel(read_config(folder), Checkpoint::open(folder));
}

inline std::string test_model(const std::string& name) {
  return std::string(KLOTSKI_TEST_DATA) + "/models/" + name;
}

}  // namespace klotski
