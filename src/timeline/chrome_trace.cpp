#include "timeline/chrome_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "timeline/lane_map.h"
#include "timeline/load_use.h"

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

std::string process_event(std::string_view name) {
  return fmt::format(R"({{"ph":"M","pid":{},"name":"process_name","args":{{"name":{}}}}})",
                     kProcess, json_text(name));
}

std::string counter_event(std::string_view name, std::chrono::nanoseconds time, double value) {
  return fmt::format(R"({{"ph":"C","pid":{},"name":{},"ts":{},"args":{{"value":{}}}}})", kProcess,
                     json_text(name), microseconds(time), value);
}

// One end of an arrow; it belongs to the event of its track that covers the time.
std::string arrow_event(char phase, size_t number, std::chrono::nanoseconds time, int track) {
  return fmt::format(
      R"({{"ph":"{}","bp":"e","id":{},"pid":{},"tid":{},"ts":{},"name":"load to use","cat":"load"}})",
      phase, number, kProcess, track, microseconds(time));
}

// Writes events with commas between.
class EventWriter {
 public:
  explicit EventWriter(std::ostream& out) : out_(out) {}
  void write(const std::string& event) {
    out_ << separator_ << event;
    separator_ = ",\n";
  }

 private:
  std::ostream& out_;
  const char* separator_ = "\n";
};

// Bytes that each lane has moved since the first span, at the end of every transfer.
void write_byte_counters(EventWriter& events, std::span<const TimelineSpan> spans) {
  std::vector<const TimelineSpan*> by_end;
  for (const TimelineSpan& span : spans) {
    if (span.bytes > 0 && span.lane.kind != LaneKind::compute) by_end.push_back(&span);
  }
  std::stable_sort(by_end.begin(), by_end.end(),
                   [](const TimelineSpan* a, const TimelineSpan* b) { return a->end < b->end; });
  LaneMap<double> moved;
  for (const TimelineSpan* span : by_end) {
    double& bytes = moved.at(span->lane);
    bytes += static_cast<double>(span->bytes);
    events.write(counter_event("bytes: " + lane_name(span->lane), span->end, bytes));
  }
}

// Loads that have ended and that nothing has used yet.
void write_queue_counter(EventWriter& events, std::span<const TimelineSpan> spans,
                         const std::vector<LoadUse>& uses) {
  std::vector<std::pair<std::chrono::nanoseconds, int>> changes;
  for (const LoadUse& one : uses) {
    changes.emplace_back(spans[one.load].end, 1);
    changes.emplace_back(spans[one.use].start, -1);
  }
  std::stable_sort(changes.begin(), changes.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first, -a.second) < std::pair(b.first, -b.second);
  });
  int waiting = 0;
  for (const auto& [time, change] : changes) {
    waiting += change;
    events.write(counter_event("loads waiting for their use", time, waiting));
  }
}

}  // namespace

void write_chrome_trace(std::ostream& out, std::span<const TimelineSpan> spans,
                        std::string_view process) {
  LaneMap<int> tracks;
  for (const TimelineSpan& span : spans) tracks.at(span.lane);
  int next = 1;
  for (auto& [lane, track] : tracks) track = next++;
  out << R"({"displayTimeUnit":"ms","traceEvents":[)";
  EventWriter events(out);
  if (!spans.empty()) events.write(process_event(process));
  for (const auto& [lane, track] : tracks) events.write(track_events(lane, track));
  const std::vector<LoadUse> uses = uses_of_loads(spans);
  write_byte_counters(events, spans);
  write_queue_counter(events, spans, uses);
  for (size_t i = 0; i < uses.size(); ++i) {
    const TimelineSpan& load = spans[uses[i].load];
    const TimelineSpan& use = spans[uses[i].use];
    events.write(arrow_event('s', i + 1, load.start, *tracks.find(load.lane)));
    events.write(arrow_event('f', i + 1, use.start, *tracks.find(use.lane)));
  }
  for (const TimelineSpan& span : spans) {
    events.write(complete_event(span, *tracks.find(span.lane)));
  }
  out << "\n]}\n";
}

}  // namespace klotski
