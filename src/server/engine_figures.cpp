#include "server/engine_figures.h"

#include <fmt/format.h>

#include <algorithm>

namespace klotski {

namespace {

// Spans that the dashboard draws: one or a few passes.
constexpr size_t kDrawnSpans = 300;

int64_t microseconds_of(std::chrono::nanoseconds time) {
  return std::chrono::duration_cast<std::chrono::microseconds>(time).count();
}

// A label's value: lanes and memories have plain names, but nothing may break the format.
std::string label(std::string_view value) {
  std::string safe;
  for (const char c : value) {
    if (c == '\n') continue;
    if (c == '\\' || c == '"') safe += '\\';
    safe += c;
  }
  return safe;
}

void add_lanes(EngineFigures& figures, Session& session, const TimelineTotals& totals) {
  const std::vector<Lane> lanes = totals.used_lanes();
  for (const Lane lane : lanes) {
    const LaneTotals of_lane = totals.lane(lane);
    figures.lanes.push_back({lane_name(lane), of_lane.bytes, in_seconds(of_lane.busy)});
  }
  const std::vector<TimelineSpan> spans = session.pipeline().timeline().spans(kDrawnSpans);
  for (const TimelineSpan& span : spans) {
    const auto lane = std::find(lanes.begin(), lanes.end(), span.lane);
    if (lane == lanes.end()) continue;  // its first span came after the totals
    figures.spans.push_back({.lane = static_cast<size_t>(lane - lanes.begin()),
                             .work = span.work,
                             .start_us = microseconds_of(span.start - spans.front().start),
                             .end_us = microseconds_of(span.end - spans.front().start)});
  }
}

void add_memory(EngineFigures& figures, const Tier& tier) {
  figures.memories.push_back({tier.name(), tier.used_bytes(), tier.limit_bytes()});
  EngineFigures::Memory& memory = figures.memories.back();
  for (const TierUse& use : tier.uses()) memory.uses.emplace_back(use.kind, use.bytes);
}

EngineFigures::Predictor predictor_of(const PipelineReport& report) {
  EngineFigures::Predictor predictor{.name = report.predictor};
  for (const LayerAccuracy& layer : report.accuracy) {
    predictor.foretold += layer.foretold;
    predictor.participated += layer.participated;
  }
  if (report.trial) {
    predictor.judged = report.trial->passes;
    predictor.followed = report.trial->followed;
    predictor.gain = report.trial->gain;
  }
  return predictor;
}

EngineFigures::Kv kv_of(const PagedKvCache& cache) {
  const auto bytes = [&](int64_t pages) {
    return static_cast<uint64_t>(pages) * cache.page_bytes();
  };
  return {.used_bytes = bytes(cache.capacity_pages() - cache.free_pages(false)),
          .kept_bytes = bytes(cache.shared_pages()),
          .limit_bytes = bytes(cache.capacity_pages())};
}

std::string counters_text(const EngineFigures& engine) {
  return prometheus_sample("klotski_running", "gauge", "Sequences that the engine computes.",
                           engine.running) +
         prometheus_sample("klotski_queue", "gauge", "Sequences that wait for room.",
                           engine.waiting) +
         prometheus_sample("klotski_passes_total", "counter", "Passes through the model.",
                           engine.passes) +
         prometheus_sample("klotski_preemptions_total", "counter",
                           "Sequences that gave their pages back and were computed anew.",
                           engine.counters.preemptions) +
         prometheus_sample("klotski_prefix_hits_total", "counter",
                           "Sequences that began with pages of the prefix cache.",
                           engine.counters.prefix.hits) +
         prometheus_sample("klotski_prefix_tokens_total", "counter",
                           "Tokens that the prefix cache saved from being computed.",
                           engine.counters.prefix.tokens) +
         prometheus_sample("klotski_drafted_tokens_total", "counter",
                           "Drafted tokens that passes verified.", engine.counters.drafts.drafted) +
         prometheus_sample("klotski_accepted_tokens_total", "counter",
                           "Drafted tokens that were what the model chose.",
                           engine.counters.drafts.accepted) +
         prometheus_sample("klotski_experts_found_total", "counter",
                           "Experts that were in fast memory when a pass asked for them.",
                           engine.experts_found) +
         prometheus_sample("klotski_experts_asked_total", "counter",
                           "Experts that passes asked for.", engine.experts_asked);
}

}  // namespace

std::string prometheus_head(std::string_view name, std::string_view type, std::string_view help) {
  return fmt::format("# HELP {0} {2}\n# TYPE {0} {1}\n", name, type, help);
}

std::string prometheus_sample(std::string_view name, std::string_view type, std::string_view help,
                              int64_t value) {
  return prometheus_head(name, type, help) + fmt::format("{} {}\n", name, value);
}

EngineFigures figures_of(Session& session) {
  const PipelineReport report = session.report();
  EngineFigures figures{.running = session.engine().running(),
                        .waiting = session.engine().waiting(),
                        .passes = report.passes,
                        .experts_found = report.experts.hits,
                        .experts_asked = report.experts.requests(),
                        .experts_evicted = report.experts.evictions,
                        .waited_share = report.totals.percent(report.totals.bubbles()) / 100.0,
                        .counters = session.engine().counters(),
                        .prefetch = report.prefetch,
                        .predictor = predictor_of(report),
                        .kv = kv_of(session.pipeline().cache())};
  add_lanes(figures, session, report.totals);
  add_memory(figures, session.prepared().compute_tier());
  if (const HostTier* host = session.prepared().host()) add_memory(figures, host->tier);
  return figures;
}

std::string prometheus_text(const EngineFigures& engine) {
  std::string text = counters_text(engine);
  const auto add_metric = [&](std::string_view name, std::string_view type, std::string_view help) {
    text += prometheus_head(name, type, help);
  };
  add_metric("klotski_lane_bytes_total", "counter", "Bytes moved between memories, by lane.");
  for (const EngineFigures::Lane& lane : engine.lanes) {
    text +=
        fmt::format("klotski_lane_bytes_total{{lane=\"{}\"}} {}\n", label(lane.name), lane.bytes);
  }
  add_metric("klotski_lane_busy_seconds_total", "counter", "Seconds of work, by lane.");
  for (const EngineFigures::Lane& lane : engine.lanes) {
    text += fmt::format("klotski_lane_busy_seconds_total{{lane=\"{}\"}} {}\n", label(lane.name),
                        lane.busy_seconds);
  }
  add_metric("klotski_prefetch_bytes_total", "counter", "Bytes of experts brought ahead, by use.");
  for (const auto& [use, bytes] :
       {std::pair("useful", engine.prefetch.useful), std::pair("late", engine.prefetch.late),
        std::pair("wasted", engine.prefetch.wasted)}) {
    text += fmt::format("klotski_prefetch_bytes_total{{use=\"{}\"}} {}\n", use, bytes);
  }
  add_metric("klotski_memory_bytes", "gauge", "Bytes reserved of a memory.");
  for (const EngineFigures::Memory& memory : engine.memories) {
    text += fmt::format("klotski_memory_bytes{{memory=\"{}\"}} {}\n", label(memory.name),
                        memory.used_bytes);
  }
  add_metric("klotski_memory_limit_bytes", "gauge", "Bytes of a memory that may be used.");
  for (const EngineFigures::Memory& memory : engine.memories) {
    text += fmt::format("klotski_memory_limit_bytes{{memory=\"{}\"}} {}\n", label(memory.name),
                        memory.limit_bytes);
  }
  return text;
}

OrderedJson stats_of(const EngineFigures& engine) {
  OrderedJson lanes = OrderedJson::array();
  for (const EngineFigures::Lane& lane : engine.lanes) {
    lanes.push_back(
        {{"name", lane.name}, {"bytes", lane.bytes}, {"busy_seconds", lane.busy_seconds}});
  }
  OrderedJson spans = OrderedJson::array();
  for (const EngineFigures::Span& span : engine.spans) {
    spans.push_back(
        OrderedJson::array({span.lane, std::string(span.work), span.start_us, span.end_us}));
  }
  OrderedJson memories = OrderedJson::array();
  for (const EngineFigures::Memory& memory : engine.memories) {
    OrderedJson uses = OrderedJson::array();
    for (const auto& [kind, bytes] : memory.uses)
      uses.push_back({{"kind", kind}, {"bytes", bytes}});
    memories.push_back({{"name", memory.name},
                        {"used_bytes", memory.used_bytes},
                        {"limit_bytes", memory.limit_bytes},
                        {"uses", std::move(uses)}});
  }
  const EngineFigures::Predictor& predictor = engine.predictor;
  return {{"running", engine.running},
          {"queue", engine.waiting},
          {"passes", engine.passes},
          {"preemptions", engine.counters.preemptions},
          {"prefix",
           {{"hits", engine.counters.prefix.hits}, {"tokens", engine.counters.prefix.tokens}}},
          {"drafts",
           {{"drafted", engine.counters.drafts.drafted},
            {"accepted", engine.counters.drafts.accepted}}},
          {"experts_found", engine.experts_found},
          {"experts_asked", engine.experts_asked},
          {"experts_evicted", engine.experts_evicted},
          {"prefetch",
           {{"useful_bytes", engine.prefetch.useful},
            {"late_bytes", engine.prefetch.late},
            {"wasted_bytes", engine.prefetch.wasted}}},
          {"predictor",
           {{"name", predictor.name},
            {"foretold", predictor.foretold},
            {"participated", predictor.participated},
            {"judged_passes", predictor.judged},
            {"followed_passes", predictor.followed},
            {"gain", predictor.gain}}},
          {"waited_share", engine.waited_share},
          {"kv",
           {{"used_bytes", engine.kv.used_bytes},
            {"kept_bytes", engine.kv.kept_bytes},
            {"limit_bytes", engine.kv.limit_bytes}}},
          {"lanes", std::move(lanes)},
          {"spans", std::move(spans)},
          {"memories", std::move(memories)}};
}

}  // namespace klotski
