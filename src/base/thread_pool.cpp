#include "base/thread_pool.h"

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <system_error>

#include "base/cpu_limit.h"
#include "base/error.h"
#include "base/memory_limit.h"
#include "base/thread_stacks.h"

namespace klotski {

namespace {

// Waking a sleeping thread takes tens of microseconds, and in a virtual machine a processor that
// slept has to be found first. The loops of a layer follow each other faster than that. Where other
// work has processors of its own, threads stay awake for the rest of a layer as well.
constexpr std::chrono::microseconds kSpin(50);
constexpr std::chrono::microseconds kSpinBesideOthers(2000);

// A thread takes the units that are left, divided by the threads and by this number: ranges become
// smaller towards the end, where threads would wait for each other, and a thread whose processor is
// busy with something else takes fewer.
constexpr int64_t kRangesPerThread = 16;

// The state: a counter of rounds, two flags and the number of workers inside the round. A worker
// enters an open round by counting itself in; one that comes too late is not waited for.
constexpr uint32_t kInside = (1u << 14) - 1;
constexpr uint32_t kOpen = 1u << 14;
constexpr uint32_t kEnd = 1u << 15;  // no more rounds
constexpr uint32_t kRound = 1u << 16;

constexpr uint32_t round_of(uint32_t state) { return state / kRound; }

thread_local bool inside_a_body = false;

// Pauses for a moment: two threads may share the units of one processor.
void let_others_go_first() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Best effort: a container may forbid it, and nothing but speed depends on it.
void pin(std::thread& thread, int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  (void)::pthread_setaffinity_np(thread.native_handle(), sizeof(set), &set);
}

}  // namespace

// One loop. Lives on the stack of its caller, who leaves after the last worker inside.
struct ThreadPool::Job {
  const Body& body;
  int64_t count;
  int64_t shares;  // a range is the units that are left, divided by this
  std::atomic<int64_t> next{0};
  std::mutex error_mutex;
  std::exception_ptr error;

  void run() {
    inside_a_body = true;
    int64_t begin = next.load(std::memory_order_relaxed);
    while (begin < count) {
      const int64_t end = begin + std::max<int64_t>(1, (count - begin) / shares);
      if (!next.compare_exchange_weak(begin, end, std::memory_order_relaxed)) continue;
      try {
        body(begin, end);
      } catch (...) {
        next.store(count, std::memory_order_relaxed);
        const std::lock_guard lock(error_mutex);
        if (!error) error = std::current_exception();
      }
      begin = next.load(std::memory_order_relaxed);
    }
    inside_a_body = false;
  }
};

ThreadPool::ThreadPool(int threads) : owner_(::getpid()) {
  if (threads < 1 || threads > static_cast<int>(kInside)) {
    fail(ErrorKind::usage, "threads: expected 1 to {}, found {}", kInside, threads);
  }
  const std::vector<int> cpus = allowed_cpus();
  const int usable = usable_cpus();  // a quota may allow fewer
  if (threads <= usable) spin_ = threads < usable ? kSpinBesideOthers : kSpin;
  const bool whole_machine = static_cast<size_t>(threads) == cpus.size();
  try {
    for (int i = 1; i < threads; ++i) {
      workers_.emplace_back([this] { serve(); });
      if (whole_machine) pin(workers_.back(), cpus[static_cast<size_t>(i)]);
    }
  } catch (const std::system_error& error) {
    const size_t started = workers_.size() + 1;
    close();
    fail(ErrorKind::does_not_fit,
         "thread {} of {} cannot be started ({}): too many processes, or {}", started + 1, threads,
         error.what(), describe_shortage(kThreadStackBytes));
  } catch (...) {  // no memory for the thread's own record
    close();
    throw;
  }
}

ThreadPool::~ThreadPool() { close(); }

void ThreadPool::close() {
  const bool forked = ::getpid() != owner_;
  if (!forked) {
    state_.store(kEnd, std::memory_order_release);
    state_.notify_all();
  }
  for (std::thread& worker : workers_) {
    if (forked) {
      worker.detach();  // the thread never existed in this process
    } else {
      worker.join();
    }
  }
  workers_.clear();
}

void ThreadPool::parallel_for(int64_t count, const Body& body) {
  if (count <= 0) return;
  if (workers_.empty() || count == 1 || inside_a_body || ::getpid() != owner_) {
    body(0, count);
    return;
  }
  const std::lock_guard turn(turn_);
  Job job{.body = body,
          .count = count,
          .shares = kRangesPerThread * threads(),
          .next = {},
          .error_mutex = {},
          .error = {}};
  job_ = &job;
  const uint32_t round = (round_of(state_.load(std::memory_order_relaxed)) + 1) * kRound;
  state_.store(round | kOpen, std::memory_order_release);
  state_.notify_all();
  job.run();
  state_.fetch_and(~kOpen, std::memory_order_acq_rel);
  uint32_t state;
  while (((state = state_.load(std::memory_order_acquire)) & kInside) != 0) wait_while(state);
  if (job.error) std::rethrow_exception(job.error);
}

void ThreadPool::serve() {
  uint32_t served = 0;  // the round this worker was in last
  uint32_t state = state_.load(std::memory_order_acquire);
  while ((state & kEnd) == 0) {
    if ((state & kOpen) == 0 || round_of(state) == served) {
      wait_while(state);
      state = state_.load(std::memory_order_acquire);
    } else if (state_.compare_exchange_weak(state, state + 1, std::memory_order_acq_rel)) {
      served = round_of(state);
      job_->run();
      const uint32_t before = state_.fetch_sub(1, std::memory_order_acq_rel);
      if ((before & (kInside | kOpen)) == 1) state_.notify_all();
      state = state_.load(std::memory_order_acquire);
    }
  }
}

void ThreadPool::wait_while(uint32_t state) const {
  const auto begin = std::chrono::steady_clock::now();
  for (auto now = begin; now < begin + spin_; now = std::chrono::steady_clock::now()) {
    if (state_.load(std::memory_order_acquire) != state) return;
    // Threads of other pools may be running too, so that there are more threads than processors.
    if (now > begin + kSpin) {
      ::sched_yield();
    } else {
      let_others_go_first();
    }
  }
  state_.wait(state, std::memory_order_acquire);
}

}  // namespace klotski
