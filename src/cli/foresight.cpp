#include "cli/foresight.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/command.h"

namespace klotski {

namespace {

// A disk that is not to be read faster.
void hold_back(MachineProfile& machine, uint64_t bytes_per_second) {
  const auto most = static_cast<double>(bytes_per_second);
  for (double MachineProfile::*rate : kDiskRates) machine.*rate = std::min(machine.*rate, most);
}

}  // namespace

Foresight::Foresight(const OpenedModel& opened, const Target& target, const RunLimits& limits,
                     const PipelineOptions& options)
    : opened_(opened),
      target_(target),
      options_(options),
      layouts_(opened.description, opened.checkpoint),
      shares_(opened.description),
      probed_(target.device ? probe_on_device(opened, target, limits)
                            : probe_model(opened, limits.precision, limits.ram_bytes)) {
  if (!probed_.cached) {
    write_err(
        fmt::format("measured the machine in {:.1f} s; kept for the next time\n", probed_.seconds));
  }
  if (options.disk.bytes_per_second > 0) {
    hold_back(probed_.profile.machine, options.disk.bytes_per_second);
  }
}

void Foresight::learn(const CorrelationTable& table) {
  shares_ = shares_in(table, opened_.description);
}

}  // namespace klotski
