#pragma once

#include <ostream>
#include <span>

#include "timeline/span.h"

namespace klotski {

// The spans as Chrome trace event JSON, which Perfetto and chrome://tracing open: one named track
// for each lane that has spans, in the order of the lanes. Event by event, so that millions of
// spans need no memory. The caller checks the stream.
void write_chrome_trace(std::ostream& out, std::span<const TimelineSpan> spans);

}  // namespace klotski
