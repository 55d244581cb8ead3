#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

namespace klotski {

struct RunPlan;

// Something about a session that its user may want to know and that is no error.
struct Remark {
  enum class Topic {
    computes_on_cpu,   // a GPU is there and cannot be used
    machine_measured,  // the machine's speed was measured, which took seconds
    experts_packed,    // experts become compact while they are read, or cannot
    no_prediction,     // too little memory to measure the machine: plans go by rules of thumb
    nothing_ends,      // no task has ended for half of the time after which that is an error
  };
  Topic topic;
  std::string text;  // one line without a line end
};

// How far a session has come with work that takes a while.
struct WorkProgress {
  std::string_view work;  // "loading weights"
  uint64_t done_bytes = 0;
  uint64_t total_bytes = 0;
};

// Receives a session's remarks, plans and progress; the session itself prints nothing. All are
// called on the thread that called the session, and may be left empty.
struct SessionEvents {
  std::function<void(const Remark&)> remark{};
  std::function<void(const RunPlan&)> planned{};  // after Session::plan, before a weight is read
  std::function<void(const WorkProgress&)> progress{};

  void tell(Remark::Topic topic, std::string text) const {
    if (remark) remark({topic, std::move(text)});
  }
};

}  // namespace klotski
