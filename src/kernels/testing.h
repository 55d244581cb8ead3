#pragma once

// Processors for the tests of every folder.

#include "kernels/cpu/cpu_processor.h"
#include "kernels/reference/reference_processor.h"

namespace klotski {

// One processor of each kind, shared by the tests of a program that do not care how it was made.
inline const Processor& reference_processor() {
  static const ReferenceProcessor kMade;
  return kMade;
}

inline const Processor& cpu_processor() {
  static const CpuProcessor kMade;
  return kMade;
}

}  // namespace klotski
