#include "schedule/dependencies.h"

#include <algorithm>

namespace klotski {

std::vector<TaskNumber> Dependencies::add(const Task& task) {
  const TaskNumber number = next_++;
  std::vector<TaskNumber> waits;
  const auto after_writer = [&](const std::vector<Resource>& resources) {
    for (const Resource& resource : resources) {
      const auto found = uses_.find(resource);
      if (found != uses_.end()) waits.push_back(found->second.writer);
    }
  };
  after_writer(task.after);
  after_writer(task.reads);
  for (const Resource& resource : task.writes) {
    const Uses& uses = uses_[resource];
    waits.push_back(uses.writer);
    waits.insert(waits.end(), uses.readers.begin(), uses.readers.end());
  }
  // Only now, so that a task that reads and writes the same place does not wait for itself.
  for (const Resource& resource : task.reads) {
    std::vector<TaskNumber>& readers = uses_[resource].readers;
    std::erase_if(readers, [&](TaskNumber reader) { return reader < done_; });
    readers.push_back(number);
  }
  for (const Resource& resource : task.writes) uses_[resource] = {.writer = number, .readers = {}};
  std::sort(waits.begin(), waits.end());
  waits.erase(std::unique(waits.begin(), waits.end()), waits.end());
  waits.erase(waits.begin(), std::lower_bound(waits.begin(), waits.end(), done_));
  return waits;
}

}  // namespace klotski
