#include <fmt/format.h>

#include <memory>

#include "base/bytes.h"
#include "base/error.h"
#include "cli/command.h"
#include "cli/signals.h"
#include "model/families/shapes.h"
#include "synth/synth.h"

namespace klotski {

namespace {

int synth_command(const SynthOptions& options) {
  SynthReport report;
  {
    StatusLine status("writing weights", "bytes");
    report = synthesise(options, [&](uint64_t done, uint64_t total) {
      stop_if_asked();
      status.update(done, total);
    });
  }
  write_out(fmt::format("{}: {}, {:.2f} G parameters, {} of weights in {} {}, share {:.3f}\n",
                        report.folder.native(), report.family,
                        static_cast<double>(report.parameters) / 1e9,
                        format_bytes(report.weight_bytes), report.weight_files,
                        report.weight_files == 1 ? "file" : "files", report.share));
  return 0;
}

}  // namespace

void add_synth_command(CLI::App& app, Action& action) {
  auto options = std::make_shared<SynthOptions>();
  CLI::App* command = app.add_subcommand(
      "synth", "Write a model of a given shape with random weights, to measure with");
  command->add_option("SHAPE", options->shape, "One of " + std::string(shape_syntax()))->required();
  command
      ->add_option("OUT", options->folder,
                   "Folder to write the model to: a new one, or an empty one")
      ->required();
  add_integer(*command, "--seed", {0, INT64_MAX}, "Seed of the weights (default 0)",
              [options](int64_t value) { options->seed = static_cast<uint64_t>(value); });
  add_number(*command, "--share", {0.0, 1.0},
             "Share of all choices that a layer's K most popular experts take together "
             "(default 0.5, or even routing where that is more)",
             [options](double value) { options->share = value; });
  command
      ->add_option_function<std::string>(
          "--dtype",
          [options](const std::string& name) {
            if (name != "bf16" && name != "f16" && name != "f32") {
              fail(ErrorKind::usage, "--dtype {}: expected bf16, f16 or f32", in_quotes(name));
            }
            options->dtype = name == "bf16" ? DType::BF16 : name == "f16" ? DType::F16 : DType::F32;
          },
          "Type of the weights: bf16 (default), f16 or f32")
      ->type_name("TYPE");
  command
      ->add_option_function<std::string>(
          "--tokenizer", [options](const std::string& folder) { options->tokenizer = folder; },
          "Copy the tokenizer of this model folder (default: bytes and a few merges)")
      ->type_name("FOLDER");
  command->callback([options, &action] {
    action = [options] {
      return run_until_asked([&] { return synth_command(*options); },
                             "the files written so far are removed");
    };
  });
}

}  // namespace klotski
