#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>

#include "schedule/dependencies.h"

namespace klotski {

// The tasks of a lane that have not begun: the highest priority first, tasks of one priority in
// program order. Only the first task of a priority may be taken, and none of a lower priority while
// it may. So a lane whose tasks all have one priority keeps program order, and a task that has to
// wait lets lower priorities go on. The executor and the simulation both take tasks from here.
class LaneQueue {
 public:
  bool empty() const { return entries_.empty(); }
  size_t size() const { return entries_.size(); }
  TaskNumber operator[](size_t place) const { return entries_[place].number; }

  // Tasks are added in program order.
  void push(TaskNumber number, float priority) {
    entries_.insert(after_priority(priority), {number, priority});
  }

  // The place of the first task with a lower priority than the task at `place`; size(): none has.
  size_t next_priority(size_t place) const {
    return static_cast<size_t>(after_priority(entries_[place].priority) - entries_.begin());
  }

  // Takes the tasks at places begin .. end - 1 out.
  void erase(size_t begin, size_t end) {
    entries_.erase(entries_.begin() + static_cast<std::ptrdiff_t>(begin),
                   entries_.begin() + static_cast<std::ptrdiff_t>(end));
  }
  bool has(TaskNumber number) const {
    return std::any_of(entries_.begin(), entries_.end(),
                       [&](const Entry& entry) { return entry.number == number; });
  }
  // Takes a task out, if it is here.
  void remove(TaskNumber number) {
    std::erase_if(entries_, [&](const Entry& entry) { return entry.number == number; });
  }

 private:
  struct Entry {
    TaskNumber number;
    float priority;
  };

  std::deque<Entry>::const_iterator after_priority(float priority) const {
    if (entries_.empty() || entries_.back().priority >= priority) return entries_.end();
    return std::upper_bound(
        entries_.begin(), entries_.end(), priority,
        [](float wanted, const Entry& entry) { return wanted > entry.priority; });
  }

  std::deque<Entry> entries_;
};

}  // namespace klotski
