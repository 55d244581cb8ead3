#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace klotski {

// Tells work that takes long from work that has stopped, in which nothing ends for as long as the
// limit. Whoever waits for the work looks at it again and again, look_every() apart. A program that
// was stopped itself looks late; time counts only as far as somebody looked in time.
class StallWatch {
 public:
  using Clock = std::chrono::steady_clock;

  // A limit of zero: work is never taken to have stopped.
  StallWatch(std::chrono::nanoseconds limit, uint64_t ended, Clock::time_point begin)
      : limit_(limit), last_look_(begin), ended_(ended) {}

  enum class Verdict {
    goes_on,
    slow,     // once: nothing has ended for half of the limit
    stalled,  // nothing has ended for the limit
  };
  // `ended` counts the pieces of work that have ended.
  Verdict look(uint64_t ended, Clock::time_point now) {
    const auto passed = std::min<std::chrono::nanoseconds>(now - last_look_, 2 * look_every());
    last_look_ = now;
    if (ended_ != ended) {
      ended_ = ended;
      still_ = {};
      told_ = false;
      return Verdict::goes_on;
    }
    still_ += passed;
    if (limit_.count() == 0) return Verdict::goes_on;
    if (still_ >= limit_) return Verdict::stalled;
    if (still_ < limit_ / 2 || told_) return Verdict::goes_on;
    told_ = true;
    return Verdict::slow;
  }

  std::chrono::nanoseconds look_every() const {
    constexpr std::chrono::nanoseconds kSeldom = std::chrono::hours(1);
    return limit_.count() == 0 ? kSeldom : std::max(limit_ / 16, std::chrono::nanoseconds(1));
  }
  // How long nothing has ended.
  std::chrono::nanoseconds still() const { return still_; }

 private:
  std::chrono::nanoseconds limit_;
  Clock::time_point last_look_;
  uint64_t ended_;  // at the last look
  std::chrono::nanoseconds still_{};
  bool told_ = false;
};

}  // namespace klotski
