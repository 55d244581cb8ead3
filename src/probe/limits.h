#pragma once

#include <cstdint>

#include "base/bytes.h"

namespace klotski {

// How far measuring may go. Where it is not far enough less is measured: fewer weights, then
// narrower matrices whose times are scaled up, then fewer rows.
struct ProbeLimits {
  static constexpr uint64_t kLeastBytes = 16 * kMiB;

  uint64_t most_bytes = 2 * kGiB;      // held at one time; less than kLeastBytes counts as
                                       // kLeastBytes
  uint64_t weight_bytes = 128 * kMiB;  // weights used in turn, so that no cache holds them
  int64_t most_rows = 512;
  double longest_call_seconds = 1.0;  // sizes whose call would take longer are left out
  uint64_t disk_bytes = 256 * kMiB;   // bytes of the file read for each way of reading it
  double disk_seconds = 0.5;          // seconds of reading for each way
};

}  // namespace klotski
