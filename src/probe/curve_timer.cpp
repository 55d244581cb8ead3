#include "probe/curve_timer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <vector>

namespace klotski {

namespace {

constexpr size_t kRuns = 3;
constexpr size_t kShortRuns = 7;       // short calls are disturbed more
constexpr double kRunSeconds = 5e-4;   // least time of a run: reading the clock takes a little
constexpr double kMostCalls = 1000.0;  // calls of a run
constexpr double kShortSeconds = 0.02;
constexpr double kLongSeconds = 0.15;  // a call this long is timed once: little can disturb it

double seconds_of_calls(const std::function<void()>& call, int calls, ProcessorMemory& memory,
                        const SecondsNow& now) {
  memory.finish();
  const double start = now();
  for (int i = 0; i < calls; ++i) call();
  memory.finish();
  return std::max(now() - start, 1e-9) / calls;
}

}  // namespace

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double seconds_of(const std::function<void()>& call, double expected, ProcessorMemory& memory,
                  const SecondsNow& now) {
  if (expected > kLongSeconds) return seconds_of_calls(call, 1, memory, now);
  const double first = seconds_of_calls(call, 1, memory, now);
  const int calls = static_cast<int>(std::clamp(std::ceil(kRunSeconds / first), 1.0, kMostCalls));
  std::vector<double> runs(first < kShortSeconds ? kShortRuns : kRuns);
  for (double& run : runs) run = seconds_of_calls(call, calls, memory, now);
  std::sort(runs.begin(), runs.end());
  return runs[runs.size() / 2];
}

Curve CurveTimer::operator()(const SizedWork& work) const {
  std::vector<double> sizes;
  std::vector<double> seconds;  // measured times, without the scale
  for (const int64_t size : work.sizes) {
    double expected = 0.0;
    uint64_t bytes = work.bytes(size);
    const uint64_t left = tier_.limit_bytes() - tier_.used_bytes();
    if (!sizes.empty()) {
      expected = seconds.back() * std::pow(static_cast<double>(size) / sizes.back(), work.growth);
      if (bytes > left || expected > limits_.longest_call_seconds) break;
    }
    bytes = std::min(bytes, left);
    const Reservation held = tier_.reserve("rows", bytes);
    seconds.push_back(seconds_of(work.make(size), expected, ops_.memory, now_));
    sizes.push_back(static_cast<double>(size));
  }
  // All sizes are timed once more, at another moment: where both times agree their mean counts,
  // else the shorter one, since other work of the machine comes and goes, and can only make a call
  // longer.
  constexpr double kAgree = 1.1;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const auto size = static_cast<int64_t>(sizes[i]);
    const uint64_t left = tier_.limit_bytes() - tier_.used_bytes();
    const Reservation held = tier_.reserve("rows", std::min(work.bytes(size), left));
    const double again = seconds_of(work.make(size), seconds[i], ops_.memory, now_);
    const auto [less, more] = std::minmax(seconds[i], again);
    seconds[i] = more < kAgree * less ? (less + more) / 2 : less;
  }
  for (double& value : seconds) value *= work.scale;
  return {sizes, seconds};
}

}  // namespace klotski
