#include "schedule/dependencies.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace klotski {

// A task that waits for the readers of a place need not wait for the writers before them: the
// readers did.
const std::vector<TaskNumber>& Dependencies::Uses::before_fill() const {
  if (!readers.empty()) return readers;
  return filling ? before : writers;
}

void Dependencies::Uses::fill(TaskNumber number) {
  if (!filling || !readers.empty()) {
    before = before_fill();
    writers.clear();
    readers.clear();
    filling = true;
  }
  writers.push_back(number);
}

void Dependencies::Uses::write(TaskNumber number) {
  writers.assign(1, number);
  readers.clear();
  before.clear();
  filling = false;
  withdrawn = false;
}

const std::vector<Edge>& Dependencies::add(const Task& task) {
  find_edges(task);
  earlier_.push_back({task.work, task.lane, begins_ahead(task), task.partial});
  count(task, next_++);
  return edges_;
}

// Leaves edges to the earlier tasks that are not known to be done in edges_. The place used longest
// ago mostly comes first, so that few numbers have to be put before larger ones.
void Dependencies::find_edges(const Task& task) {
  waits_.clear();
  ++asked_;
  for (const Resource& resource : task.fills) wait_for(uses_of(resource).before_fill());
  for (const Resource& resource : task.writes) {
    const Uses& uses = uses_of(resource);
    wait_for(uses.writers);
    wait_for(uses.readers);
  }
  for (const Resource& resource : task.reads) {
    const Uses& uses = uses_of(resource);
    if (uses.withdrawn) {
      fail(ErrorKind::internal, "a task reads what was to be brought by one that was withdrawn");
    }
    wait_for(uses.writers);
  }
  for (const Resource& resource : task.after) wait_for(uses_of(resource).writers);
  const bool ahead = begins_ahead(task);
  edges_.clear();
  for (const TaskNumber number : waits_) {
    edges_.push_back({number, ahead ? after(task, earlier(number)) : After::done});
  }
}

// Adds to waits_, in ascending order, those of the tasks that may still run and that it lacks.
void Dependencies::wait_for(const std::vector<TaskNumber>& tasks) {
  for (const TaskNumber number : tasks) {
    if (number < done_ || std::exchange(earlier(number).asked, asked_) == asked_) continue;
    if (waits_.empty() || waits_.back() < number) {
      waits_.push_back(number);
    } else {
      waits_.insert(std::upper_bound(waits_.begin(), waits_.end(), number), number);
    }
  }
}

// Counts the uses of a task; called after find_edges(), so that a task that reads and writes a
// place does not wait for itself.
void Dependencies::count(const Task& task, TaskNumber number) {
  for (const Resource& resource : task.reads) {
    std::vector<TaskNumber>& readers = uses_of(resource).readers;
    if (!readers.empty() && readers.front() < done_) {
      readers.erase(readers.begin(), std::lower_bound(readers.begin(), readers.end(), done_));
    }
    readers.push_back(number);
  }
  for (const Resource& resource : task.fills) uses_of(resource).fill(number);
  for (const Resource& resource : task.writes) {
    uses_of(resource).write(number);
  }
}

// How a task that begins ahead waits.
After Dependencies::after(const Task& task, const Earlier& earlier) const {
  if (earlier.partial) return After::done;
  const TaskKind& kind = kind_of(task.work);
  const bool in_order = kind.lanes == LaneClass::processor && task.lane == earlier.lane;
  const bool by_event = earlier.begins_ahead && kind.awaits.has(earlier.work);
  const bool by_count = lanes_.keep_program_order && kind.awaits_count.has(earlier.work);
  return in_order || by_event || by_count ? After::begun : After::done;
}

void Dependencies::make_room(size_t kind, size_t number) {
  if (kind >= uses_.size()) uses_.resize(kind + 1);
  if (number >= uses_[kind].size()) uses_[kind].resize(number + 1);
}

void Dependencies::done_before(TaskNumber number) {
  done_ = number;
  const auto done = static_cast<size_t>(done_ - first_earlier_);
  if (2 * done < earlier_.size()) return;
  earlier_.erase(earlier_.begin(), earlier_.begin() + static_cast<std::ptrdiff_t>(done));
  first_earlier_ = done_;
}

void Dependencies::withdraw(const Task& task, TaskNumber number) {
  for (const std::vector<Resource>* resources : {&task.writes, &task.fills}) {
    for (const Resource& resource : *resources) {
      Uses& uses = uses_of(resource);
      uses.withdrawn |= std::count(uses.writers.begin(), uses.writers.end(), number) > 0;
    }
  }
}

}  // namespace klotski
