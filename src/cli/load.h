#pragma once

#include <filesystem>
#include <string>

#include "model/description.h"
#include "weights/checkpoint.h"

namespace klotski {

// A model as commands see it: where it is, what it is, where its tensors lie. No weight is read.
struct OpenedModel {
  std::filesystem::path folder;
  ModelDescription description;
  Checkpoint checkpoint;
};

OpenedModel open_model(const std::string& model);

}  // namespace klotski
