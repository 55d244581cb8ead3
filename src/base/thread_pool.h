#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace klotski {

// A fixed number of threads that share out loops. The calling thread is one of them; the workers
// look for work for a while after each loop, longer where processors are left over, and then sleep.
class ThreadPool {
 public:
  using Body = std::function<void(int64_t begin, int64_t end)>;

  // `threads` counts the caller. Where they are as many as the processors this process may use,
  // each worker keeps to one of its own: left alone, the system sometimes runs two busy threads on
  // one processor for seconds.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body on ranges that cover 0 .. count - 1, and returns when all have ended; which thread
  // takes which range differs from call to call. The first exception of a body ends the loop early
  // and is thrown here. Calls from several threads take turns. A call from within a body, or in a
  // child process made by fork (which has no workers), runs on the calling thread alone.
  void parallel_for(int64_t count, const Body& body);

 private:
  struct Job;

  void serve();
  void close();
  void wait_while(uint32_t state) const;

  std::chrono::microseconds spin_{0};  // how long a thread looks before it sleeps
  pid_t owner_;
  std::mutex turn_;                 // held by the call that uses the workers
  Job* job_ = nullptr;              // the loop of the present round
  std::atomic<uint32_t> state_{0};  // round, whether it is open, workers in it; see the source
  std::vector<std::thread> workers_;
};

}  // namespace klotski
