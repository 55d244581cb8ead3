#include "cli/load.h"

#include "model/config.h"
#include "weights/model_folder.h"

namespace klotski {

OpenedModel open_model(const std::string& model) {
  const std::filesystem::path folder = find_model(model);
  return {
      .folder = folder, .description = read_config(folder), .checkpoint = Checkpoint::open(folder)};
}

}  // namespace klotski
