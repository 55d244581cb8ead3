#include "timeline/chrome_trace.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstdlib>
#include <string>

#include "base/json.h"
#include "timeline/lane_map.h"

namespace klotski {

namespace {

constexpr int kProcess = 1;

std::string json_text(std::string_view text) {
  return Json(std::string(text)).dump(-1, ' ', false, Json::error_handler_t::replace);
}

// The format counts in microseconds; three decimals keep the nanoseconds.
std::string microseconds(std::chrono::nanoseconds time) {
  const auto count = time.count();
  return fmt::format("{}{}.{:03}", count < 0 ? "-" : "", std::abs(count / 1000),
                     std::abs(count % 1000));
}

// Names the track and puts it in its place.
std::string track_events(Lane lane, int track) {
  const std::string name = json_text(lane_name(lane));
  return fmt::format(
      R"({{"ph":"M","pid":{0},"tid":{1},"name":"thread_name","args":{{"name":{2}}}}},)"
      "\n"
      R"({{"ph":"M","pid":{0},"tid":{1},"name":"thread_sort_index","args":{{"sort_index":{1}}}}})",
      kProcess, track, name);
}

std::string name_of(const TimelineSpan& span) {
  return span.expert < 0 ? std::string(span.work) : fmt::format("{} {}", span.work, span.expert);
}

std::string complete_event(const TimelineSpan& span, int track) {
  std::string arguments = fmt::format(R"("step":{})", span.step);
  const auto add_index = [&](const char* key, int32_t value) {
    if (value >= 0) arguments += fmt::format(R"(,"{}":{})", key, value);
  };
  add_index("layer", span.layer);
  add_index("micro_batch", span.micro_batch);
  add_index("expert", span.expert);
  if (span.bytes > 0) arguments += fmt::format(R"(,"bytes":{})", span.bytes);
  if (span.waited_for) {
    arguments += fmt::format(R"(,"waited_for":{})", json_text(lane_name(*span.waited_for)));
  }
  return fmt::format(
      R"({{"ph":"X","pid":{},"tid":{},"name":{},"cat":{},"ts":{},"dur":{},"args":{{{}}}}})",
      kProcess, track, json_text(name_of(span)), json_text(span.work), microseconds(span.start),
      microseconds(span.duration()), arguments);
}

}  // namespace

void write_chrome_trace(std::ostream& out, std::span<const TimelineSpan> spans) {
  LaneMap<int> tracks;
  for (const TimelineSpan& span : spans) tracks.at(span.lane);
  int next = 1;
  for (auto& [lane, track] : tracks) track = next++;
  out << R"({"displayTimeUnit":"ms","traceEvents":[)";
  const char* separator = "\n";
  for (const auto& [lane, track] : tracks) {
    out << separator << track_events(lane, track);
    separator = ",\n";
  }
  for (const TimelineSpan& span : spans) {
    out << separator << complete_event(span, *tracks.find(span.lane));
  }
  out << "\n]}\n";
}

}  // namespace klotski
