#pragma once

// What has begun ends, whatever else goes wrong.

#include <atomic>

namespace klotski {

// While an error is on its way: whatever else goes wrong now, that error is the one that counts.
template <typename Action>
void quietly(const Action& action) noexcept {
  try {
    action();
  } catch (...) {
  }
}

// Sets something going. Where that fails, what has begun still uses its memory: it is waited for
// before the error goes on.
template <typename Calls, typename Finish>
void begin_or_finish(const Calls& calls, const Finish& finish) {
  try {
    calls();
  } catch (...) {
    quietly(finish);
    throw;
  }
}

// Counts so many more at its end, whichever way that comes.
template <typename Number>
struct CountedAtEnd {
  std::atomic<Number>& count;
  Number more;

  ~CountedAtEnd() { count += more; }
};

}  // namespace klotski
