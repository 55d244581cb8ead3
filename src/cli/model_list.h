#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace klotski {

// A place that seems to have a model, by the name that commands take as MODEL.
struct FoundModel {
  std::string name;
  std::filesystem::path place;
};

// Models, and places that `most` models or kMostEntries folder entries hid.
struct ModelSearch {
  std::vector<FoundModel> models;
  bool cut_short = false;
};

// The bundled model `tiny`, the repositories of a Hugging Face cache, and the models in the given
// folders: a folder with config.json, GGUF files (of shards the first), and both in subfolders.
// Opens no model: what folders hold may be anything. Refuses (usage) a given folder that is none.
ModelSearch find_models(const std::optional<std::filesystem::path>& hub_cache,
                        const std::vector<std::string>& folders);

}  // namespace klotski
