// Memory that runs out while tasks are submitted, at every allocation.

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <new>

#include "executor/executor.h"
#include "schedule/testing.h"

namespace {

thread_local int64_t allocations_left = -1;  // of this thread; negative: as many as it wants

}  // namespace

void* operator new(size_t bytes) {
  if (allocations_left >= 0 && allocations_left-- == 0) throw std::bad_alloc();
  void* const memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  return std::malloc(bytes == 0 ? 1 : bytes);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace klotski {
namespace {

Fragment load_and_compute(int32_t slot) {
  Fragment tasks;
  for (int64_t expert = 0; expert < 3; ++expert) {
    const Resource place{Place::slot, slot + static_cast<int32_t>(expert), UnitKind::expert};
    tasks.push_back(task_of(Work::load, Lane::kToDevice, {}, {place}));
    tasks.back().unit = {UnitKind::expert, LayerId(0), ExpertId(expert)};
    tasks.push_back(task_of(Work::expert, Lane::kCompute, {place}, {}));
  }
  return tasks;
}

// The first k allocations succeed. Returns whether these were enough.
bool submitted_with(int64_t k) {
  std::atomic<int> run{0};
  Timeline timeline{0};
  ExecutorOptions options;
  options.stall_limit = std::chrono::seconds(10);
  Executor executor({.run = [&](Executor::Tasks tasks) { run += static_cast<int>(tasks.size()); }},
                    timeline, options, {});
  executor.wait(executor.submit(load_and_compute(0)));
  Fragment tasks = load_and_compute(1);
  bool enough = true;
  allocations_left = k;
  try {
    executor.submit(std::move(tasks));
  } catch (const std::bad_alloc&) {
    enough = false;
  }
  allocations_left = -1;
  executor.recover();
  const int before = run;
  EXPECT_LE(before, 12);
  EXPECT_EQ(before == 12, enough);
  executor.wait(executor.submit(load_and_compute(2)));
  executor.drain(/*loads_may_go_on=*/false);
  EXPECT_EQ(run, before + 6) << "tasks of a later submission";
  return enough;
}

TEST(MemoryRunsOut, WhereverItDoesLaterTasksRun) {
  int64_t k = 0;
  while (!submitted_with(k) && !HasFailure()) ++k;
  EXPECT_GT(k, 6);
}

}  // namespace
}  // namespace klotski
