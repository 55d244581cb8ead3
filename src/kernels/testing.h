#pragma once

// Processors for the tests of every folder.

#include "kernels/cpu/cpu_ops.h"
#include "kernels/reference/reference_ops.h"

namespace klotski {

// One of each, shared by the tests of a program that do not care how it was made.
inline const Ops& reference_ops() {
  static const ReferenceProcessor kMade;
  return kMade;
}

inline const Ops& cpu_ops() {
  static const CpuProcessor kMade;
  return kMade;
}

}  // namespace klotski
