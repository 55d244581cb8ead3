#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "schedule/task.h"

namespace klotski {

// Position of a task in the order in which tasks were given, from 0 on.
using TaskNumber = int64_t;

// Derives from what tasks read and write which earlier tasks each has to wait for: a reader for the
// last writer, a writer for the last writer and everyone who read since. Tasks that fill a place,
// each a part of it, are together its last writer. This is the only place where synchronisation
// comes from; how a task waits, by its lane or by itself, is the executor's.
class Dependencies {
 public:
  // The earlier tasks that `task`, numbered next, must wait for; ascending, each once.
  std::vector<TaskNumber> add(const Task& task);
  TaskNumber next() const { return next_; }

  // Every task before `number` is done: nobody needs to wait for it any more.
  void done_before(TaskNumber number) { done_ = number; }

 private:
  struct Uses {
    std::vector<TaskNumber> writers;  // the last one, or all that fill it since it was last read
    std::vector<TaskNumber> readers;  // since
    bool filling = false;             // `writers` are tasks that fill the place
    std::vector<TaskNumber> before;   // then: what each of them waits for

    // What a task that fills the place next waits for.
    const std::vector<TaskNumber>& before_fill() const;
    void fill(TaskNumber number);
  };

  TaskNumber next_ = 0;
  TaskNumber done_ = 0;
  std::map<Resource, Uses> uses_;
};

}  // namespace klotski
