#include "weights/front_to_back.h"

#include <algorithm>
#include <atomic>

#include "base/cpu_limit.h"
#include "base/thread_pool.h"

namespace klotski {

namespace {

constexpr int kMaxThreads = 8;

}  // namespace

void front_to_back(size_t count, const std::function<void(size_t index)>& work) {
  ThreadPool pool(std::min(usable_cpus(), kMaxThreads));
  std::atomic<size_t> next = 0;
  pool.parallel_for(pool.threads(), [&](int64_t, int64_t) {
    try {
      for (size_t i = next++; i < count; i = next++) work(i);
    } catch (...) {
      next = count;
      throw;
    }
  });
}

}  // namespace klotski
