#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "model/description.h"
#include "model/unit_source.h"
#include "probe/probe.h"
#include "weights/checkpoint.h"

namespace klotski {

class TemporaryFolder;

// A model that is ready to be planned for: where it is, its description, where its tensors lie. No
// weight has been read.
struct OpenedModel {
  std::filesystem::path folder;  // the model's folder, or its first GGUF file
  ModelDescription description;
  Checkpoint checkpoint;
  // Generates the weights, for one session at a time; null: the checkpoint's files have them.
  std::shared_ptr<UnitSource> source;
  std::shared_ptr<const TemporaryFolder> home;  // keeps the folder of a generated model
};

// Opens a model on disk. `name` is a folder, a GGUF file, a bundled name or a repository id.
std::shared_ptr<OpenedModel> open_model(const std::string& name);

// A model of random weights, which are generated in memory when they are asked for.
struct SyntheticChoice {
  std::string shape;  // see model/families/shapes.h
  uint64_t seed = 0;
  std::optional<double> share{};  // see SynthOptions
};
std::shared_ptr<const OpenedModel> open_synthetic_model(const SyntheticChoice& choice);

// Bytes of memory in which the machine may be measured: the bytes left, within `most_bytes`.
uint64_t memory_to_measure(std::optional<uint64_t> most_bytes);

// The model's profile on `cpu`, measured in at most half of the memory that is left
// and of `most_bytes`: the program and its kernels take some too.
Probed probe_model(const OpenedModel& opened, const Processor& cpu, Precision precision,
                   std::optional<uint64_t> most_bytes = {});

}  // namespace klotski
