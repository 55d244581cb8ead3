#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <stdexcept>
#include <string>

#include "text/chat_template.h"

namespace klotski::jinja {

// A mistake that a template makes while it renders. The interpreter knows the line and turns the
// mistake into an Error at its border, so helpers need not carry positions.
class Failure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

template <typename... Args>
[[noreturn]] void raise(fmt::format_string<Args...> format, Args&&... args) {
  throw Failure(fmt::format(format, std::forward<Args>(args)...));
}

// Counts the steps and bytes of one rendering. Nothing is ever given back: the sum bounds both the
// time and the memory of a hostile template, and the count does not depend on when values die.
class Budget {
 public:
  explicit Budget(const TemplateLimits& limits) : limits_(limits) {}

  void step(uint64_t count = 1) {
    steps_ += count;
    if (steps_ > limits_.max_steps) {
      raise("step budget of {} used up; the template loops too long", limits_.max_steps);
    }
  }

  // Work over `bytes` of text or items; a step buys a cache line of plain scanning.
  void scan(uint64_t bytes) { step(1 + bytes / 64); }

  // Work over `bytes` of text that looks at every character by itself.
  void scan_characters(uint64_t bytes) { step(1 + bytes / 8); }

  // Books an allocation; called before it, so that nothing is allocated that the budget forbids.
  void allocate(uint64_t bytes) {
    if (bytes > limits_.max_memory_bytes || memory_ > limits_.max_memory_bytes - bytes) {
      raise("memory budget of {} bytes used up", limits_.max_memory_bytes);
    }
    memory_ += bytes;
    scan(bytes);
  }

  // count * size without overflow.
  void allocate(uint64_t count, uint64_t size) {
    if (size != 0 && count > limits_.max_memory_bytes / size) allocate(UINT64_MAX);
    allocate(count * size);
  }

  void output(uint64_t total_bytes) const {
    if (total_bytes > limits_.max_output_bytes) {
      raise("output budget of {} bytes used up", limits_.max_output_bytes);
    }
  }

  int max_depth() const { return limits_.max_depth; }

 private:
  TemplateLimits limits_;
  uint64_t steps_ = 0;
  uint64_t memory_ = 0;
};

// Holds one level of a recursion that a template controls.
class DepthGuard {
 public:
  DepthGuard(int* depth, int limit) : depth_(depth) {
    if (*depth_ >= limit) raise("nested too deeply (limit {})", limit);
    ++*depth_;
  }
  ~DepthGuard() { --*depth_; }
  DepthGuard(const DepthGuard&) = delete;
  DepthGuard& operator=(const DepthGuard&) = delete;

 private:
  int* depth_;
};

}  // namespace klotski::jinja
