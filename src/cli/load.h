#pragma once

#include <filesystem>
#include <string>

#include "model/description.h"
#include "probe/probe.h"
#include "weights/checkpoint.h"

namespace klotski {

// A model as commands see it: where it is, what it is, where its tensors lie. No weight is read.
struct OpenedModel {
  std::filesystem::path folder;
  ModelDescription description;
  Checkpoint checkpoint;
};

OpenedModel open_model(const std::string& model);

// The model's profile on this machine, measured in at most half of the memory that is left and of
// `most_bytes`: the program itself, and what it computes with, take some too.
Probed probe_model(const OpenedModel& opened, Precision precision,
                   std::optional<uint64_t> most_bytes = {});

}  // namespace klotski
