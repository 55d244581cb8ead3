#include "executor/prefetch_audit.h"

namespace klotski {

void PrefetchAudit::observe(const Task& task, const TimelineSpan& span) {
  if (task.unit.kind != UnitKind::expert || task.tier != kComputeTier) return;
  const std::lock_guard lock(mutex_);
  const auto unused = unused_.find(task.slot);
  if (task.work == Work::load) {
    if (unused != unused_.end() && task.offset == 0) {
      bytes_.wasted += unused->second;
      unused_.erase(unused);
    }
    if (task.reason != LoadReason::demand) unused_[task.slot] += task.bytes;
  } else if (task.work == Work::expert && unused != unused_.end()) {
    const bool late = span.waited_for && (span.waited_for->kind == LaneKind::read ||
                                          span.waited_for->kind == LaneKind::copy);
    (late ? bytes_.late : bytes_.useful) += unused->second;
    unused_.erase(unused);
  }
}

PrefetchBytes PrefetchAudit::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

}  // namespace klotski
