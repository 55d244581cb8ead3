#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "session/opened_model.h"

namespace CLI {
class App;
}

namespace klotski {

// The model that the command line names: one on disk, or the shape of a synthetic one.
struct ModelFlags {
  std::optional<std::string> model;  // folder, GGUF file, bundled name or repository id
  std::string shape;                 // see model/families/shapes.h; empty: `model` is on disk
  std::optional<uint64_t> seed;
  std::optional<double> share;

  bool given() const { return model || !shape.empty() || seed || share; }
  const std::string& name() const { return model ? *model : shape; }
};

// Adds MODEL, --synthetic and the options that go with it. The flags must live as long as the
// command.
void add_model_flags(CLI::App& command, ModelFlags& flags,
                     const std::string& help = "Folder, GGUF file, bundled name or repository id");

// Refuses (usage) flags that name two models or none.
std::shared_ptr<const OpenedModel> open_model(const ModelFlags& flags);

}  // namespace klotski
