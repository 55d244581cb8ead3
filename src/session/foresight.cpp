#include "session/foresight.h"

#include <algorithm>

namespace klotski {

namespace {

// Makes the disk of a profile no faster than the run may read it.
void hold_back(MachineProfile& machine, uint64_t bytes_per_second) {
  const auto most = static_cast<double>(bytes_per_second);
  for (double DiskProfile::*rate : kDiskRates)
    machine.disk().*rate = std::min(machine.disk().*rate, most);
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
                            : probe_model(opened, target.ops, limits.precision, limits.ram_bytes)) {
  if (options.disk.bytes_per_second > 0) {
    hold_back(probed_.profile.machine, options.disk.bytes_per_second);
  }
}

void Foresight::assume_popularity(const CorrelationTable* table) {
  shares_ = table ? shares_in(*table, opened_.description) : ExpertShares(opened_.description);
}

}  // namespace klotski
