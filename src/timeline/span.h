#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>

#include "timeline/lane.h"

namespace klotski {

// One piece of work on one lane. Times count from the timeline's start. (Span alone is a stretch of
// text, in text/.)
struct TimelineSpan {
  Lane lane{};
  // Static text: "attention", "gate", "expert", "combine", and for transfers one of these after
  // "load " ("load expert") or another short name. Drawings give a work and its load one hue.
  std::string_view work;
  bool is_expert_work = false;  // the computing of experts, not their transfer
  int64_t step = 0;
  int32_t layer = -1;  // -1, like -1 in the next fields: none in particular
  int32_t micro_batch = -1;
  int32_t expert = -1;  // -1 also where several experts ran in one call
  std::chrono::nanoseconds start{0};
  std::chrono::nanoseconds end{0};
  uint64_t bytes = 0;  // moved, for transfers
  // The lane of the dependency that finished last, if this span could not start when its lane was
  // free.
  std::optional<Lane> waited_for;

  std::chrono::nanoseconds duration() const { return end - start; }
};

}  // namespace klotski
