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

namespace CLI {
class App;
}

namespace klotski {

class TemporaryFolder;

// Which model a command is about: one on disk, or a shape whose weights are random and generated
// straight into memory.
struct ModelChoice {
  std::optional<std::string> model;  // folder, bundled name or repository id
  std::string shape;                 // see model/families/shapes.h
  std::optional<uint64_t> seed;
  std::optional<double> share;

  bool given() const { return model || !shape.empty() || seed || share; }
  const std::string& name() const { return model ? *model : shape; }
};

// MODEL, --synthetic and what belongs to it. The choice must live as long as the command.
void add_model_option(CLI::App& command, ModelChoice& choice,
                      const std::string& help = "Folder, bundled name or repository id");

// A model as commands see it: where it is, what it is, where its tensors lie. No weight is read.
struct OpenedModel {
  std::filesystem::path folder;
  ModelDescription description;
  Checkpoint checkpoint;
  std::shared_ptr<UnitSource> source;           // of the weights; null: the checkpoint's files
  std::shared_ptr<const TemporaryFolder> home;  // keeps the folder of a generated model
};

OpenedModel open_model(const std::string& model);
// Refuses (usage) a choice of both or of none.
OpenedModel open_model(const ModelChoice& choice);

// What may be used to measure in: what is left, within what the user allows.
uint64_t memory_to_measure(std::optional<uint64_t> most_bytes);

// The model's profile on this machine, measured in at most half of the memory that is left and of
// `most_bytes`: the program itself, and what it computes with, take some too.
Probed probe_model(const OpenedModel& opened, Precision precision,
                   std::optional<uint64_t> most_bytes = {});

}  // namespace klotski
