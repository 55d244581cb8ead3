#pragma once

#include <filesystem>
#include <string>

#include "cli/command.h"
#include "engine/resident_model.h"
#include "kernels/ops.h"
#include "weights/checkpoint.h"

namespace klotski {

// A model as commands see it: where it is, what it is, where its tensors lie. No weight is read.
struct OpenedModel {
  std::filesystem::path folder;
  ModelDescription description;
  Checkpoint checkpoint;
};

OpenedModel open_model(const std::string& model);

// Reads the weights, with progress. Refuses (does_not_fit) before reading when weights and
// `kv_bytes` exceed the memory that is free within the machine's and the container's limits.
ResidentModel load_weights(const OpenedModel& model, uint64_t kv_bytes);

// --kernels NAME: which implementation of the arithmetic a command uses.
void add_kernels_option(CLI::App& command, std::string& kernels);
const Ops& ops_named(const std::string& kernels);

}  // namespace klotski
