#include "probe/repeating.h"

#include <algorithm>
#include <utility>

namespace klotski {

double seconds_since(Clock::time_point start) {
  return std::max(std::chrono::duration<double>(Clock::now() - start).count(), 1e-9);
}

double seconds_each(const std::function<void()>& call, double about) {
  const auto start = Clock::now();
  int64_t calls = 0;
  do {
    call();
    ++calls;
  } while (seconds_since(start) < about);
  return seconds_since(start) / static_cast<double>(calls);
}

Repeating::Repeating(std::function<void()> call)
    : call_(std::move(call)), thread_([this] { repeat(); }) {}

void Repeating::repeat() {
  const auto start = Clock::now();
  try {
    do {
      call_();
      ++calls_;
    } while (!stop_);
  } catch (...) {
    error_ = std::current_exception();
  }
  seconds_ = seconds_since(start);
}

void Repeating::join() {
  stop_ = true;
  if (thread_.joinable()) thread_.join();
}

void Repeating::end() {
  join();
  if (error_) std::rethrow_exception(error_);
}

}  // namespace klotski
