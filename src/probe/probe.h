#pragma once

#include <filesystem>
#include <functional>
#include <optional>

#include "device/device.h"
#include "hardware/profile.h"
#include "kernels/ops.h"
#include "model/description.h"
#include "probe/limits.h"
#include "weights/tensor_source.h"

namespace klotski {

// The model and the processor whose profile is wanted. The references must outlive the call.
struct ProbeSubject {
  const ModelDescription& model;
  const TensorSource& checkpoint;  // its largest file is read; without files no disk is measured
  const Processor& ops;            // the measured processor
  const Processor& host;           // a processor of the program: measures its memory and its disk
  Precision precision;
  ProbeLimits limits = {};
  Device* device = nullptr;        // the device of `ops`; null: a CPU
  uint64_t device_bytes = 0;       // bytes of the device's ProcessorMemory
  const Processor* cpu = nullptr;  // the CPU's, where a device computes; null: not measured
};

// Measures now, which takes seconds.
Profile measure_profile(const ProbeSubject& subject);

struct Probed {
  Profile profile;
  bool cached = false;        // measured by an earlier process
  double seconds = 0;         // time to measure or to find the profile
  bool contradicted = false;  // there was a stored profile, but runs went otherwise
  // Why the next process has to measure anew; empty where it need not.
  std::string why_not_kept{};
};

using MeasureProfile = std::function<Profile(const ProbeSubject&)>;

// The stored profile where it is of this machine, model and program, and later runs do not
// contradict it (runs_contradict_profile()); otherwise measures and stores it. Limits are no part
// of the comparison: a profile measured with little memory is used later as well. A profile that
// cannot be stored is measured again next time; Probed says why.
Probed probe(const ProbeSubject& subject, const MeasureProfile& measure = measure_profile);

// The folder of profiles: $KLOTSKI_CACHE, else klotski in $XDG_CACHE_HOME or in $HOME/.cache;
// nothing where none is set.
std::optional<std::filesystem::path> cache_folder();

}  // namespace klotski
