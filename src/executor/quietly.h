#pragma once

// Work that has begun ends, whatever else goes wrong.

#include <atomic>

namespace klotski {

// Runs an action while an error is on its way: errors of the action are dropped, the first one
// counts.
template <typename Action>
void quietly(const Action& action) noexcept {
  try {
    action();
  } catch (...) {
  }
}

// Begins some work. Where that fails, the part that has begun still uses its memory: `finish` waits
// for it before the error goes on.
template <typename Calls, typename Finish>
void begin_or_finish(const Calls& calls, const Finish& finish) {
  try {
    calls();
  } catch (...) {
    quietly(finish);
    throw;
  }
}

// Adds `more` to the count when it is destroyed, after an exception too.
template <typename Number>
struct CountedAtEnd {
  std::atomic<Number>& count;
  Number more;

  ~CountedAtEnd() { count += more; }
};

}  // namespace klotski
