#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>

#include "base/bytes.h"
#include "cli/command.h"
#include "cli/signals.h"
#include "model/compact_model.h"
#include "session/opened_model.h"

namespace klotski {

namespace {

struct CompactOptions {
  std::string model;
  std::string folder;
};

int compact_command(const CompactOptions& options) {
  const auto model = open_model(options.model);
  CompactReport report;
  {
    std::optional<StatusLine> status;
    std::optional<CompactStep> shown;
    report = compact_model(
        model->description, model->checkpoint, options.folder,
        [&](CompactStep step, uint64_t done, uint64_t total) {
          if (shown != step) {
            status.emplace(step == CompactStep::checking ? "checking weights" : "writing weights",
                           "bytes");
          }
          shown = step;
          stop_if_asked();
          status->update(done, total);
        });
  }
  const CompactCounts& counts = report.counts;
  write_out(fmt::format(
      "{}: {} of weights in {} {}, {} before; {} matrices compact, {} left as they were{}\n",
      report.folder.native(), format_bytes(report.bytes_after), report.weight_files,
      report.weight_files == 1 ? "file" : "files", format_bytes(report.bytes_before),
      counts.compact, counts.left(),
      counts.left() == 0 ? "" : fmt::format(" ({})", why_left(counts))));
  for (const NotCopied& entry : report.not_copied) {
    write_err(one_line(fmt::format("not copied: {} ({})", entry.name, entry.reason)) + "\n");
  }
  return 0;
}

}  // namespace

void add_compact_command(CLI::App& app, Action& action) {
  auto options = std::make_shared<CompactOptions>();
  CLI::App* command = app.add_subcommand(
      "compact",
      "Write a BF16 model anew with the weights of its experts in about 12 bits each, exactly");
  command->add_option("MODEL", options->model, "Folder, bundled name or repository id")->required();
  command
      ->add_option("OUT", options->folder,
                   "Folder to write the compact model to: a new one, or an empty one")
      ->required();
  command->callback([options, &action] {
    action = [options] {
      return run_until_asked([&] { return compact_command(*options); },
                             "the files written so far are removed");
    };
  });
}

}  // namespace klotski
