#pragma once

#include <cstdint>
#include <vector>

#include "schedule/task.h"
#include "timeline/lane_map.h"

namespace klotski {

// Position of a task in the order in which tasks were given, from 0 on.
using TaskNumber = int64_t;

// When a task may begin with respect to an earlier one that it depends on: when that is done, or
// when that has begun. In the second case the work of the task, once begun, waits by itself until
// the earlier task is over.
enum class After { done, begun };

struct Edge {
  TaskNumber task;  // the task at the other end; for a task that waits, the earlier one
  After after;

  bool operator==(const Edge&) const = default;
};

// How lanes take tasks, said by whoever carries them out.
struct LaneRules {
  // Calls of a lane that have begun and are not over, at most. 0, or not named: the lane begins
  // nothing ahead, as all lanes of a host.
  LaneMap<size_t> most_begun{};
  bool keep_program_order = true;  // on all lanes but those that carry weights

  size_t most_begun_on(Lane lane) const {
    const size_t* most = most_begun.find(lane);
    return most ? *most : 0;
  }
};

// Derives from the places that tasks read and write which earlier tasks each has to wait for: a
// reader waits for the last writer, a writer for the last writer and all readers since. Tasks that
// fill a place, each a part of it, are together its last writer. This is the only place where
// synchronisation comes from: the kinds of the two tasks (task_kind.h) and the lanes' rules say how
// a task waits.
class Dependencies {
 public:
  explicit Dependencies(const LaneRules& lanes = {}) : lanes_(lanes) {}

  // Edges of `task`, numbered next, to the tasks it must wait for; ascending, each earlier task
  // once. They hold until the next call. Fails, and counts nothing, where the task reads a place
  // that a withdrawn task should have written. Where memory runs out the task has its number or
  // not, as next() says.
  const std::vector<Edge>& add(const Task& task);
  TaskNumber next() const { return next_; }

  // Whether the task's work is set going before it may be waited for.
  bool begins_ahead(const Task& task) const {
    return kind_of(task.work).begins_ahead && lanes_.most_begun_on(task.lane) > 0;
  }

  // Every task before `number` is done: nobody needs to wait for it any more.
  void done_before(TaskNumber number);

  // The task will write nothing: the places it would have written may not be read before another
  // task writes them. Later tasks still wait for it, and so for all tasks that it waits for.
  void withdraw(const Task& task, TaskNumber number);

 private:
  // The tasks that used a place, in lists that ascend.
  struct Uses {
    std::vector<TaskNumber> writers;  // the last one, or all that fill it since it was last read
    std::vector<TaskNumber> readers;  // since
    bool filling = false;             // `writers` are tasks that fill the place
    std::vector<TaskNumber> before;   // if filling: tasks that each of them waits for
    bool withdrawn = false;           // a writer was

    // Tasks that a task waits for which fills the place next.
    const std::vector<TaskNumber>& before_fill() const;
    void fill(TaskNumber number);
    void write(TaskNumber number);
  };
  // The properties of an earlier task that edges to it depend on.
  struct Earlier {
    Work work;
    Lane lane;
    bool begins_ahead;
    bool partial;
    int64_t asked = 0;  // the search for edges that found it last
  };

  void find_edges(const Task& task);
  void wait_for(const std::vector<TaskNumber>& tasks);
  void count(const Task& task, TaskNumber number);
  After after(const Task& task, const Earlier& earlier) const;
  Earlier& earlier(TaskNumber number) {
    return earlier_[static_cast<size_t>(number - first_earlier_)];
  }
  Uses& uses_of(const Resource& resource) {
    const size_t kind = resource.kind_index();
    const auto number = static_cast<size_t>(resource.number);
    if (kind >= uses_.size() || number >= uses_[kind].size()) make_room(kind, number);
    return uses_[kind][number];
  }
  void make_room(size_t kind, size_t number);

  LaneRules lanes_;
  TaskNumber next_ = 0;
  TaskNumber done_ = 0;
  std::vector<Earlier> earlier_;   // tasks from first_earlier_ on
  TaskNumber first_earlier_ = 0;   // done_, or less: tasks that are done leave in large numbers
  int64_t asked_ = 0;              // searches for edges so far
  std::vector<TaskNumber> waits_;  // of the task at hand; it and edges_ are kept for their memory
  std::vector<Edge> edges_;
  // Uses by kind of resource, then by number: both are small and dense.
  std::vector<std::vector<Uses>> uses_;
};

}  // namespace klotski
