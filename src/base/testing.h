#pragma once

// Helpers that tests of several folders share.

#include <time.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <string>

#include "base/error.h"

namespace klotski {

// The message with which an action is refused; empty where it is not.
inline std::string refusal(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// Random trials of a test that normally makes `all` of them: `all` times the number in the
// environment variable KLOTSKI_TRIALS, where it is set. Below 1 for sanitizers that make a trial
// ten times as long, above it for soak runs.
inline int trials(int all) {
  const char* factor = std::getenv("KLOTSKI_TRIALS");
  if (factor == nullptr) return all;
  return std::max(1, static_cast<int>(all * std::strtod(factor, nullptr)));
}

// Processor seconds of this thread: a busy machine lengthens them less than seconds on the wall.
inline double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Whether four times the size take about four times as long; quadratic work would take sixteen
// times. Each size counts with its shortest attempt, and there are more where the machine seems to
// be busy.
inline bool takes_linear_time(const std::function<void(int64_t size)>& work, int64_t size) {
  constexpr int kLeastAttempts = 2;
  constexpr int kMostAttempts = 8;
  double small = 1e9;
  double large = 1e9;
  const auto seconds = [&](int64_t of_size) {
    const double start = processor_seconds();
    work(of_size);
    return processor_seconds() - start;
  };
  for (int attempt = 1; attempt <= kMostAttempts; ++attempt) {
    small = std::min(small, seconds(size));
    large = std::min(large, seconds(4 * size));
    if (attempt >= kLeastAttempts && large < 8 * small) return true;
  }
  return false;
}

}  // namespace klotski
