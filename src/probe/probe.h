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
  const Processor& ops;            // what is measured
  const Processor& host;  // of the program's own processors: measures its memory and its disk
  Precision precision;
  ProbeLimits limits = {};
  Device* device = nullptr;        // that the operations run on; null: the CPU
  uint64_t device_bytes = 0;       // of ProcessorMemory, then
  const Processor* cpu = nullptr;  // where a device computes: what the CPU beside it computes with
};

// Measures now, in seconds.
Profile measure_profile(const ProbeSubject& subject);

struct Probed {
  Profile profile;
  bool cached = false;  // measured by an earlier process
  double seconds = 0;   // that it took to measure or to find
};

using MeasureProfile = std::function<Profile(const ProbeSubject&)>;

// The stored profile where it is of this machine, model and program; else measures and stores it.
// The limits are no part of that: a profile measured with little memory is used later as well. What
// cannot be stored is measured again next time, without a word.
Probed probe(const ProbeSubject& subject, const MeasureProfile& measure = measure_profile);

// $KLOTSKI_CACHE, else klotski in $XDG_CACHE_HOME or in $HOME/.cache; nothing where none is set.
std::optional<std::filesystem::path> cache_folder();

}  // namespace klotski
