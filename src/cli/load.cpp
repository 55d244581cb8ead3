#include "cli/load.h"

#include <algorithm>

#include "base/memory_limit.h"
#include "model/config.h"
#include "weights/model_folder.h"

namespace klotski {

OpenedModel open_model(const std::string& model) {
  const std::filesystem::path folder = find_model(model);
  return {
      .folder = folder, .description = read_config(folder), .checkpoint = Checkpoint::open(folder)};
}

Probed probe_model(const OpenedModel& opened, Precision precision,
                   std::optional<uint64_t> most_bytes) {
  ProbeLimits limits;
  limits.most_bytes = std::min(
      {limits.most_bytes, memory_left().least() / 2, most_bytes.value_or(limits.most_bytes) / 2});
  return probe({.model = opened.description,
                .checkpoint = opened.checkpoint,
                .ops = cpu_ops(),
                .precision = precision,
                .limits = limits});
}

}  // namespace klotski
