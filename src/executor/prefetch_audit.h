#pragma once

#include <cstdint>
#include <map>
#include <mutex>

#include "schedule/task.h"

namespace klotski {

// Bytes of experts that were brought before a gate asked for them.
struct PrefetchBytes {
  uint64_t useful = 0;  // used, and there in time
  uint64_t late = 0;    // used, but computing had to wait for them
  uint64_t wasted = 0;  // overwritten before anyone used them
};

// Books every prefetched expert once. Told of finished tasks by the lanes' workers.
class PrefetchAudit {
 public:
  void observe(const Task& task, const TimelineSpan& span);
  PrefetchBytes bytes() const;

 private:
  mutable std::mutex mutex_;            // guards all members that follow
  std::map<int32_t, uint64_t> unused_;  // bytes, by slot
  PrefetchBytes bytes_;
};

}  // namespace klotski
