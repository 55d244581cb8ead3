#pragma once

// Loops that do nothing but the measured operation, in a namespace of each instruction set. Like
// the kernels' own files, files that include this one share no inline functions with others.

#include <cstdint>

namespace klotski::bench {

// Multiplies and adds in registers; returns the number of floating-point operations. The result
// goes to *sink, so that nothing is optimised away.
using MultiplyLoop = int64_t (*)(int64_t rounds, float* sink);

// Adds up numbers in memory; count is a multiple of kReadStep.
using ReadLoop = float (*)(const float* data, int64_t count);
inline constexpr int64_t kReadStep = 256;

}  // namespace klotski::bench

#define KLOTSKI_DECLARE_MULTIPLY(isa, type)  \
  namespace klotski::bench::isa {            \
  int64_t type(int64_t rounds, float* sink); \
  }
#define KLOTSKI_DECLARE_READ(isa)               \
  namespace klotski::bench::isa {               \
  float read(const float* data, int64_t count); \
  }
