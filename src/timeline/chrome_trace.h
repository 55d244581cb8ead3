#pragma once

#include <ostream>
#include <span>
#include <string_view>

#include "timeline/span.h"

namespace klotski {

// The spans as Chrome trace event JSON, which Perfetto and chrome://tracing open: a process of the
// given name, one named track for each lane that has spans, in the order of the lanes, arrows from
// each load of weights to its first use, and counters of the bytes that each lane has moved and of
// the loads that wait for their use. The caller checks the stream.
void write_chrome_trace(std::ostream& out, std::span<const TimelineSpan> spans,
                        std::string_view process = "klotski");

}  // namespace klotski
