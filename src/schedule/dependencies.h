#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "schedule/task.h"

namespace klotski {

// Position of a task in the order in which tasks were given, from 0 on.
using TaskNumber = int64_t;

// Derives from what tasks read and write which earlier tasks each has to wait for: a reader for the
// last writer, a writer for the last writer and everyone who read since. This is the only place
// where synchronisation comes from.
class Dependencies {
 public:
  // The earlier tasks that `task`, numbered next, must wait for; ascending, each once.
  std::vector<TaskNumber> add(const Task& task);
  TaskNumber next() const { return next_; }

  // Every task before `number` is done: nobody needs to wait for it any more.
  void done_before(TaskNumber number) { done_ = number; }

 private:
  struct Uses {
    TaskNumber writer = -1;
    std::vector<TaskNumber> readers;  // since that write
  };

  TaskNumber next_ = 0;
  TaskNumber done_ = 0;
  std::map<Resource, Uses> uses_;
};

}  // namespace klotski
