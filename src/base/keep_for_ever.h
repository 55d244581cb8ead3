#pragma once

#include <list>
#include <mutex>
#include <utility>

namespace klotski {

// Keeps a value until the process ends, and never destroys it: for what a thread uses that may
// never return.
template <typename T>
void keep_for_ever(T value) {
  static std::mutex mutex;
  static auto& kept = *new std::list<T>;
  const std::lock_guard lock(mutex);
  kept.push_back(std::move(value));
}

}  // namespace klotski
