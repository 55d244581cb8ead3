#include "probe/fingerprint.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <array>
#include <fstream>
#include <string_view>

#include "probe/model.h"

namespace klotski {

namespace {

// Version of the way to measure; a change makes every stored profile old.
constexpr int kMethod = 14;

std::string file_system_of(const std::optional<std::filesystem::path>& path) {
  struct stat found {};
  if (!path) return "none";
  return std::to_string(::stat(path->c_str(), &found) == 0 ? found.st_dev : 0);
}

// Neighbouring layers of one shape are counted.
std::string layers_text(const ModelDescription& model) {
  std::string text;
  for (size_t i = 0; i < model.layers.size();) {
    const std::string shape = layer_shape(model.layers[i]);
    size_t end = i + 1;
    while (end < model.layers.size() && layer_shape(model.layers[end]) == shape) ++end;
    text += fmt::format("\n{} layers: {}", end - i, shape);
    i = end;
  }
  return text;
}

}  // namespace

std::string processor_name(const std::filesystem::path& cpuinfo) {
  constexpr std::array<std::string_view, 5> kFields{"model name", "CPU implementer", "CPU part",
                                                    "CPU variant", "CPU revision"};
  std::ifstream file(cpuinfo);
  std::string name;
  for (std::string line; std::getline(file, line) && !line.empty();) {  // the first processor
    for (const std::string_view field : kFields) {
      const size_t colon = line.find(": ");
      if (!line.starts_with(field) || colon == std::string::npos) continue;
      name += fmt::format("{}{}", name.empty() ? "" : " ", line.substr(colon + 2));
    }
  }
  return name.empty() ? "unknown" : name;
}

std::string fingerprint(const ModelDescription& model, const StoredTypes& types,
                        const ComputedWith& with, Precision precision,
                        const std::optional<std::filesystem::path>& model_file) {
  std::string text = fmt::format(
      "klotski {} method {}\nprocessor {}\nkernels {}, {} threads\nfile system {}\n"
      "precision {}\nhidden {} vocabulary {} tied {} positions {} rope {} of {}\ntypes",
      KLOTSKI_VERSION, kMethod, processor_name(), with.kernels, with.threads,
      file_system_of(model_file), static_cast<int>(precision), model.hidden, model.vocabulary,
      model.tied_embeddings, model.max_positions, static_cast<int>(model.rope.kind),
      model.rope.rotated_dims);
  for (const DType type : types) text += fmt::format(" {}", dtype_name(type));
  return text + layers_text(model);
}

}  // namespace klotski
