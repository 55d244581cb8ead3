#include <pthread.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/memory_limit.h"
#include "base/thread_stacks.h"
#include "memory/read_queue.h"

namespace klotski {

namespace {

class ThreadQueue final : public ReadQueue {
 public:
  explicit ThreadQueue(size_t depth) {
    waiting_.reserve(depth);
    finished_.reserve(depth);
    threads_.reserve(depth);
    try {
      while (threads_.size() < depth) threads_.emplace_back([this] { work(); });
    } catch (const std::system_error& error) {
      // Fewer threads read more slowly, but read.
      if (threads_.empty()) {
        fail(ErrorKind::does_not_fit,
             "no thread can be started to read from the disk ({}): too many processes, or {}",
             error.what(), describe_shortage(kThreadStackBytes));
      }
    } catch (const std::bad_alloc&) {  // for the thread's own record
      if (threads_.empty()) throw;
    }
  }

  ~ThreadQueue() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    work_there_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  ThreadQueue(const ThreadQueue&) = delete;
  ThreadQueue& operator=(const ThreadQueue&) = delete;

  void submit(size_t slot, const ReadRequest& request) noexcept override {
    {
      const std::lock_guard lock(mutex_);
      waiting_.push_back({slot, request});
    }
    work_there_.notify_one();
  }

  ReadCompletion wait() noexcept override {
    std::unique_lock lock(mutex_);
    result_there_.wait(lock, [&] { return !finished_.empty(); });
    const ReadCompletion completion = finished_.back();
    finished_.pop_back();
    return completion;
  }

 private:
  struct Work {
    size_t slot = 0;
    ReadRequest request;
  };

  void work() {
    // Signals are for the threads that wait for them, not for these.
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_BLOCK, &all, nullptr);

    std::unique_lock lock(mutex_);
    for (;;) {
      work_there_.wait(lock, [&] { return stopping_ || !waiting_.empty(); });
      if (stopping_) return;
      const Work next = waiting_.front();
      waiting_.erase(waiting_.begin());
      lock.unlock();
      const ReadRequest& read = next.request;
      const ssize_t got = read_calls().pread(read.descriptor, read.destination, read.bytes,
                                             static_cast<off_t>(read.offset));
      const int64_t result = got < 0 ? -errno : got;
      lock.lock();
      finished_.push_back({next.slot, result});
      result_there_.notify_one();
    }
  }

  std::mutex mutex_;  // guards waiting_, finished_ and stopping_
  std::condition_variable work_there_;
  std::condition_variable result_there_;
  std::vector<Work> waiting_;  // oldest first
  std::vector<ReadCompletion> finished_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<ReadQueue> make_thread_queue(size_t depth) {
  return std::make_unique<ThreadQueue>(depth);
}

}  // namespace klotski
