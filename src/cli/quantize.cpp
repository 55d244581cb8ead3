#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "base/bytes.h"
#include "cli/command.h"
#include "cli/signals.h"
#include "model/quantized_model.h"
#include "session/opened_model.h"

namespace klotski {

namespace {

struct QuantizeOptions {
  std::string model;
  std::string folder;
  QuantizeSettings settings;
};

// Progress with the time that is left, by the rate of this run.
class QuantizeStatus {
 public:
  void update(uint64_t done, uint64_t total, uint64_t kept) {
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - started_;
    const auto made = static_cast<double>(done - kept);
    const double left = made > 0.0 ? passed.count() * static_cast<double>(total - done) / made : 0;
    line_.update(done, total, made > 0.0 ? fmt::format("{:.0f} s left", left) : "");
  }

 private:
  StatusLine line_{"quantising", "bytes"};
  std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
};

std::string counted_files(size_t files) {
  return fmt::format("{} {}", files, files == 1 ? "file" : "files");
}

int quantize_command(const QuantizeOptions& options) {
  const auto model = open_model(options.model);
  QuantizeReport report;
  {
    QuantizeStatus status;
    report = quantize_model(model->description, model->checkpoint, options.folder, options.settings,
                            [&](uint64_t done, uint64_t total, uint64_t kept) {
                              stop_if_asked();
                              status.update(done, total, kept);
                            });
  }
  if (report.bytes_kept > 0) {
    write_err(fmt::format("{} of weights were there from an interrupted run\n",
                          format_bytes(report.bytes_kept)));
  }
  const QuantizeCounts& counts = report.counts;
  write_out(fmt::format(
      "{}: {} of weights in {}, {} before; {} matrices quantised with a relative error of {:.4f}, "
      "at most {:.4f}, {} left as they were{}\n",
      report.folder.native(), format_bytes(report.bytes_after), counted_files(report.weight_files),
      format_bytes(report.bytes_before), counts.quantized, report.errors.mean(),
      report.errors.worst, counts.left(),
      counts.left() == 0 ? "" : fmt::format(" ({})", why_left(counts))));
  for (const NotCopied& entry : report.not_copied) {
    write_err(one_line(fmt::format("not copied: {} ({})", entry.name, entry.reason)) + "\n");
  }
  return 0;
}

}  // namespace

void add_quantize_command(CLI::App& app, Action& action) {
  auto options = std::make_shared<QuantizeOptions>();
  CLI::App* command = app.add_subcommand(
      "quantize",
      "Write a model anew with the weights of its experts in 4 or 3 bits each (HQQ), with loss. A "
      "run that is interrupted goes on with the files it completed when it is started again");
  command->add_option("MODEL", options->model, "Folder, bundled name or repository id")->required();
  command
      ->add_option("OUT", options->folder,
                   "Folder to write the quantised model to: a new one, or an empty one")
      ->required();
  QuantizeSettings& settings = options->settings;
  command
      ->add_option("--bits", settings.bits,
                   "Bits of a weight of experts and dense feed-forward parts: 4 or 3")
      ->check(CLI::IsMember({4, 3}))
      ->required();
  command
      ->add_option("--group", settings.group,
                   "Weights of a row that share a scale and a zero point: 32, 64 (default) or 128")
      ->check(CLI::IsMember({32, 64, 128}));
  command->add_flag("--attention", settings.attention,
                    "Quantise the projections of attention too, to 4 bits");
  command->callback([options, &action] {
    action = [options] {
      return run_until_asked([&] { return quantize_command(*options); },
                             "the same command goes on with the files that are complete");
    };
  });
}

}  // namespace klotski
