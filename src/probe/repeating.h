#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <thread>

namespace klotski {

using Clock = std::chrono::steady_clock;

// Seconds since `start`, never zero: rates are divided by them.
double seconds_since(Clock::time_point start);

// Seconds of one call, measured over as many calls as take about `about` seconds; one at least.
double seconds_each(const std::function<void()>& call, double about);

// A thread that does something again and again, without a pause, at least once.
class Repeating {
 public:
  explicit Repeating(std::function<void()> call);
  ~Repeating() { join(); }
  Repeating(const Repeating&) = delete;
  Repeating& operator=(const Repeating&) = delete;

  // Waits for the call under way; throws the exception of a call, which was then the last one.
  void end();
  // Seconds and calls, to be asked after end().
  double seconds() const { return seconds_; }
  int64_t calls() const { return calls_; }

 private:
  void repeat();
  void join();

  std::function<void()> call_;
  std::atomic<bool> stop_{false};
  double seconds_ = 0;
  int64_t calls_ = 0;
  std::exception_ptr error_;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace klotski
