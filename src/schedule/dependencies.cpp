#include "schedule/dependencies.h"

#include <algorithm>

#include "base/error.h"

namespace klotski {

// Readers wait for the writers before them, so that whoever waits for readers need not.
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

std::vector<Edge> Dependencies::add(const Task& task) {
  const std::vector<TaskNumber> numbers = numbers_before(task);
  std::vector<Edge> edges;
  edges.reserve(numbers.size());
  for (const TaskNumber number : numbers) {
    edges.push_back({number, after(task, earlier_[static_cast<size_t>(number - done_)])});
  }
  count(task, next_++);
  return edges;
}

// The earlier tasks that are not known to be done, ascending, each once.
std::vector<TaskNumber> Dependencies::numbers_before(const Task& task) {
  std::vector<TaskNumber> waits;
  const auto wait_for = [&](const std::vector<TaskNumber>& tasks) {
    waits.insert(waits.end(), tasks.begin(), tasks.end());
  };
  const auto after_writer = [&](const std::vector<Resource>& resources) {
    for (const Resource& resource : resources) wait_for(uses_of(resource).writers);
  };
  after_writer(task.after);
  for (const Resource& resource : task.reads) {
    const Uses& uses = uses_of(resource);
    if (uses.withdrawn) {
      fail(ErrorKind::internal, "a task reads what was to be brought by one that was withdrawn");
    }
    wait_for(uses.writers);
  }
  for (const Resource& resource : task.writes) {
    const Uses& uses = uses_of(resource);
    wait_for(uses.writers);
    wait_for(uses.readers);
  }
  for (const Resource& resource : task.fills) wait_for(uses_of(resource).before_fill());
  std::sort(waits.begin(), waits.end());
  waits.erase(std::unique(waits.begin(), waits.end()), waits.end());
  waits.erase(waits.begin(), std::lower_bound(waits.begin(), waits.end(), done_));
  return waits;
}

// Counts the uses of a task; called after numbers_before(), so that a task that reads and writes a
// place does not wait for itself.
void Dependencies::count(const Task& task, TaskNumber number) {
  for (const Resource& resource : task.reads) {
    std::vector<TaskNumber>& readers = uses_of(resource).readers;
    std::erase_if(readers, [&](TaskNumber reader) { return reader < done_; });
    readers.push_back(number);
  }
  for (const Resource& resource : task.fills) uses_of(resource).fill(number);
  for (const Resource& resource : task.writes) {
    uses_of(resource).write(number);
  }
  earlier_.push_back({task.work, task.lane, begins_ahead(task), task.partial});
}

After Dependencies::after(const Task& task, const Earlier& earlier) const {
  if (!begins_ahead(task) || earlier.partial) return After::done;
  const TaskKind& kind = kind_of(task.work);
  const bool in_order = kind.lanes == LaneClass::processor && task.lane == earlier.lane;
  const bool by_event = earlier.begins_ahead && kind.awaits.has(earlier.work);
  const bool by_count = lanes_.keep_program_order && kind.awaits_count.has(earlier.work);
  return in_order || by_event || by_count ? After::begun : After::done;
}

void Dependencies::done_before(TaskNumber number) {
  earlier_.erase(earlier_.begin(), earlier_.begin() + (number - done_));
  done_ = number;
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
