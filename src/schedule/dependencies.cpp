#include "schedule/dependencies.h"

#include <algorithm>

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

std::vector<TaskNumber> Dependencies::add(const Task& task) {
  const TaskNumber number = next_++;
  std::vector<TaskNumber> waits;
  const auto wait_for = [&](const std::vector<TaskNumber>& tasks) {
    waits.insert(waits.end(), tasks.begin(), tasks.end());
  };
  const auto after_writer = [&](const std::vector<Resource>& resources) {
    for (const Resource& resource : resources) {
      const auto found = uses_.find(resource);
      if (found != uses_.end()) wait_for(found->second.writers);
    }
  };
  after_writer(task.after);
  after_writer(task.reads);
  for (const Resource& resource : task.writes) {
    const Uses& uses = uses_[resource];
    wait_for(uses.writers);
    wait_for(uses.readers);
  }
  for (const Resource& resource : task.fills) wait_for(uses_[resource].before_fill());
  // Only now, so that a task that reads and writes the same place does not wait for itself.
  for (const Resource& resource : task.reads) {
    std::vector<TaskNumber>& readers = uses_[resource].readers;
    std::erase_if(readers, [&](TaskNumber reader) { return reader < done_; });
    readers.push_back(number);
  }
  for (const Resource& resource : task.fills) uses_[resource].fill(number);
  for (const Resource& resource : task.writes) {
    uses_[resource] = {.writers = {number}, .readers = {}, .before = {}};
  }
  std::sort(waits.begin(), waits.end());
  waits.erase(std::unique(waits.begin(), waits.end()), waits.end());
  waits.erase(waits.begin(), std::lower_bound(waits.begin(), waits.end(), done_));
  return waits;
}

}  // namespace klotski
