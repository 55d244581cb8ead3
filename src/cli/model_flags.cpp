#include "cli/model_flags.h"

#include "base/error.h"
#include "cli/command.h"
#include "model/families/shapes.h"

namespace klotski {

void add_model_flags(CLI::App& command, ModelFlags& flags, const std::string& help) {
  command.add_option("MODEL", flags.model, help);
  const std::string usual = command.option_defaults()->get_group();
  command.option_defaults()->group(kExperimentGroup);
  command
      .add_option(
          "--synthetic", flags.shape,
          "Instead of MODEL: a model of this shape with random weights, which are generated "
          "in memory as `klotski synth` would write them. One of " +
              std::string(shape_syntax()))
      ->type_name("SHAPE");
  add_integer(command, "--synthetic-seed", {0, INT64_MAX},
              "Seed of the weights of the --synthetic model (default 0)",
              [&flags](int64_t value) { flags.seed = static_cast<uint64_t>(value); });
  add_number(command, "--synthetic-share", {0.0, 1.0},
             "In the --synthetic model, share of all choices that a layer's K most popular experts "
             "take together (default 0.5, or even routing where that is more)",
             [&flags](double value) { flags.share = value; });
  command.option_defaults()->group(usual);
}

std::shared_ptr<const OpenedModel> open_model(const ModelFlags& flags) {
  if (flags.model.has_value() != flags.shape.empty()) {
    fail(ErrorKind::usage, "MODEL and --synthetic SHAPE: expected one of them, found {}",
         flags.model ? "both" : "neither");
  }
  if (flags.shape.empty() && (flags.seed || flags.share)) {
    fail(ErrorKind::usage,
         "--synthetic-seed and --synthetic-share: expected --synthetic SHAPE with them");
  }
  if (flags.shape.empty()) return open_model(*flags.model);
  return open_synthetic_model(
      {.shape = flags.shape, .seed = flags.seed.value_or(0), .share = flags.share});
}

}  // namespace klotski
