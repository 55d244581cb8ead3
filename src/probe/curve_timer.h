#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "hardware/profile.h"
#include "kernels/ops.h"
#include "memory/tier.h"
#include "probe/limits.h"

namespace klotski {

// Work of several sizes.
struct SizedWork {
  std::vector<int64_t> sizes;                               // ascending
  std::function<uint64_t(int64_t size)> bytes;              // rows and scratch
  std::function<std::function<void()>(int64_t size)> make;  // gets ready; the result is timed
  double growth = 1.0;                                      // power of the size in the time
  double scale = 1.0;                                       // factor of the measured time
};

// Seconds since some moment; never less than before.
using SecondsNow = std::function<double()>;
double steady_seconds();

// Times work of ascending sizes, as long as memory and patience last; the first size always.
class CurveTimer {
 public:
  CurveTimer(Tier& tier, const ProbeLimits& limits, const Processor& ops,
             SecondsNow now = steady_seconds)
      : tier_(tier), limits_(limits), ops_(ops), now_(std::move(now)) {}
  Curve operator()(const SizedWork& work) const;

 private:
  Tier& tier_;
  const ProbeLimits& limits_;
  const Processor& ops_;
  SecondsNow now_;
};

// Seconds of a call of operations on this memory: the median of a few runs after one that does not
// count, each of as many calls as the clock needs. A long call, known to take about `expected`
// seconds, is run once.
double seconds_of(const std::function<void()>& call, double expected, ProcessorMemory& memory,
                  const SecondsNow& now);

}  // namespace klotski
