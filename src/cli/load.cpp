#include "cli/load.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/bytes.h"
#include "base/error.h"
#include "base/memory_limit.h"
#include "base/process_memory.h"
#include "cli/command.h"
#include "model/config.h"
#include "model/families/shapes.h"
#include "synth/synthetic_model.h"
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
  return {.folder = folder,
          .description = read_config(folder),
          .checkpoint = Checkpoint::open(folder),
          .source = {},
          .home = {}};
}

OpenedModel open_model(const ModelChoice& choice) {
  if (choice.model.has_value() != choice.shape.empty()) {
    fail(ErrorKind::usage, "MODEL and --synthetic SHAPE: expected one of them, found {}",
         choice.model ? "both" : "neither");
  }
  if (choice.shape.empty() && (choice.seed || choice.share)) {
    fail(ErrorKind::usage,
         "--synthetic-seed and --synthetic-share: expected --synthetic SHAPE with them");
  }
  if (choice.shape.empty()) return open_model(*choice.model);
  SyntheticModel made = synthetic_model({.shape = choice.shape,
                                         .folder = {},
                                         .seed = choice.seed.value_or(0),
                                         .share = choice.share,
                                         .tokenizer = {}});
  return {.folder = std::move(made.folder),
          .description = std::move(made.description),
          .checkpoint = std::move(made.checkpoint),
          .source = std::move(made.source),
          .home = std::move(made.home)};
}

void add_model_option(CLI::App& command, ModelChoice& choice, const std::string& help) {
  command.add_option("MODEL", choice.model, help);
  command
      .add_option("--synthetic", choice.shape,
                  "Instead of MODEL: generate what `klotski synth` would write, straight into "
                  "memory. One of " +
                      std::string(shape_syntax()))
      ->type_name("SHAPE");
  add_integer(command, "--synthetic-seed", {0, INT64_MAX}, "Seed of these weights (default 0)",
              [&choice](int64_t value) { choice.seed = static_cast<uint64_t>(value); });
  add_number(command, "--synthetic-share", {0.0, 1.0},
             "Share of all choices that a layer's K most popular experts take together "
             "(default 0.5, or even routing where that is more)",
             [&choice](double value) { choice.share = value; });
}

uint64_t memory_to_measure(std::optional<uint64_t> most_bytes) {
  const uint64_t most = most_bytes.value_or(UINT64_MAX);
  return std::min(memory_left().least(), most - std::min(most, resident_bytes()));
}

Probed probe_model(const OpenedModel& opened, Precision precision,
                   std::optional<uint64_t> most_bytes) {
  const uint64_t allowed = memory_to_measure(most_bytes);
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
