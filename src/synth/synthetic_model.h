#pragma once

#include <filesystem>
#include <memory>

#include "model/description.h"
#include "model/unit_source.h"
#include "synth/synth.h"
#include "synth/temporary_folder.h"
#include "weights/checkpoint.h"

namespace klotski {

// A random model whose weights are nowhere until they are asked for; the rest of it lies in a
// folder as that of any other model does.
struct SyntheticModel {
  std::shared_ptr<const TemporaryFolder> home;  // keeps the folder
  std::filesystem::path folder;                 // named as the shape
  ModelDescription description;
  Checkpoint checkpoint;  // without files
  std::shared_ptr<UnitSource> source;
};

// The model that synthesise() would write with these options, whose folder does not count.
SyntheticModel synthetic_model(const SynthOptions& options);

}  // namespace klotski
