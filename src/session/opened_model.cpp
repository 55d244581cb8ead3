#include "session/opened_model.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/bytes.h"
#include "base/error.h"
#include "base/folder.h"
#include "base/memory_limit.h"
#include "base/process_memory.h"
#include "model/config.h"
#include "synth/synthetic_model.h"
#include "weights/gguf.h"
#include "weights/model_folder.h"

namespace klotski {

namespace {

// Bytes of memory without which nothing is measured: half of them hold the weights to measure with,
// the other half is for the program and its kernels.
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

std::shared_ptr<OpenedModel> open_model(const std::string& name) {
  const std::filesystem::path folder = find_model(name);
  // The error of a folder without config.json names this file, whatever weights the folder has.
  if (!is_gguf_file(folder)) file_in_folder(folder, "config.json");
  Checkpoint checkpoint = Checkpoint::open(folder);
  ModelDescription description = describe_model(checkpoint);
  return std::make_shared<OpenedModel>(OpenedModel{.folder = folder,
                                                   .description = std::move(description),
                                                   .checkpoint = std::move(checkpoint),
                                                   .source = {},
                                                   .home = {}});
}

std::shared_ptr<const OpenedModel> open_synthetic_model(const SyntheticChoice& choice) {
  SyntheticModel made = synthetic_model({.shape = choice.shape,
                                         .folder = {},
                                         .seed = choice.seed,
                                         .share = choice.share,
                                         .tokenizer = {}});
  return std::make_shared<const OpenedModel>(OpenedModel{.folder = std::move(made.folder),
                                                         .description = std::move(made.description),
                                                         .checkpoint = std::move(made.checkpoint),
                                                         .source = std::move(made.source),
                                                         .home = std::move(made.home)});
}

uint64_t memory_to_measure(std::optional<uint64_t> most_bytes) {
  const uint64_t most = most_bytes.value_or(UINT64_MAX);
  return std::min(memory_left().least(), most - std::min(most, resident_bytes()));
}

Probed probe_model(const OpenedModel& opened, const Processor& cpu, Precision precision,
                   std::optional<uint64_t> most_bytes) {
  const uint64_t allowed = memory_to_measure(most_bytes);
  ProbeLimits limits;
  limits.most_bytes = std::min(limits.most_bytes, allowed / 2);
  return probe({.model = opened.description,
                .checkpoint = opened.checkpoint,
                .ops = cpu,
                .host = cpu,
                .precision = precision,
                .limits = limits},
               [allowed](const ProbeSubject& subject) { return measure_within(allowed, subject); });
}

}  // namespace klotski
