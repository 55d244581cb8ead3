#pragma once

// A disk that answers as a test wants.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <utility>

#include "memory/disk_reader.h"

namespace klotski {

// Replaces the answers to requests, numbered from 0; the bytes that a replaced answer denies are
// destroyed, so that they count only if they are read again. Used by the lane that reads.
class FaultHook : public ReadHook {
 public:
  using Fault = std::function<int64_t(int call, int64_t result)>;
  explicit FaultHook(Fault fault) : fault_(std::move(fault)) {}

  int64_t completed(const ReadRequest& request, int64_t result) noexcept override {
    const int call = calls_++;
    const int64_t answer = off_ ? result : fault_(call, result);
    const int64_t kept = std::max<int64_t>(answer, 0);
    if (answer < result) {
      std::fill(request.destination + kept, request.destination + result, std::byte{0xEE});
    }
    return answer;
  }
  void switch_off() { off_ = true; }
  int calls() const { return calls_; }

 private:
  Fault fault_;
  std::atomic<int> calls_ = 0;
  std::atomic<bool> off_ = false;
};

}  // namespace klotski
