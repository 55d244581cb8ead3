#include "cli/load.h"

#include <algorithm>
#include <cstdint>

#include "base/bytes.h"
#include "base/error.h"
#include "base/memory_limit.h"
#include "base/process_memory.h"
#include "model/config.h"
#include "weights/model_folder.h"

namespace klotski {

namespace {

// Half of what there is measures; the other half is for the program and what it computes with.
constexpr uint64_t kLeastToMeasure = 2 * ProbeLimits::kLeastBytes;

Profile measure_within(uint64_t allowed, const ProbeSubject& subject) {
  if (allowed < kLeastToMeasure) {
    fail(ErrorKind::does_not_fit,
         "measuring the machine needs at least {} of memory, the limit is {}: {} too little",
         format_bytes(kLeastToMeasure), format_bytes(allowed),
         format_bytes(kLeastToMeasure - allowed));
  }
  return measure_profile(subject);
}

}  // namespace

OpenedModel open_model(const std::string& model) {
  const std::filesystem::path folder = find_model(model);
  return {
      .folder = folder, .description = read_config(folder), .checkpoint = Checkpoint::open(folder)};
}

Probed probe_model(const OpenedModel& opened, Precision precision,
                   std::optional<uint64_t> most_bytes) {
  const uint64_t most = most_bytes.value_or(UINT64_MAX);
  const uint64_t allowed = std::min(memory_left().least(), most - std::min(most, resident_bytes()));
  ProbeLimits limits;
  limits.most_bytes = std::min(limits.most_bytes, allowed / 2);
  return probe({.model = opened.description,
                .checkpoint = opened.checkpoint,
                .ops = cpu_ops(),
                .precision = precision,
                .limits = limits},
               [allowed](const ProbeSubject& subject) { return measure_within(allowed, subject); });
}

}  // namespace klotski
