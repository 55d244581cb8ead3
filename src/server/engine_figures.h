#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "session/session.h"

namespace klotski {

// State of the engine after a pass, for metrics and the dashboard.
struct EngineFigures {
  struct Lane {
    std::string name;
    uint64_t bytes = 0;         // moved so far
    double busy_seconds = 0.0;  // so far
  };
  // Work on a lane that ran a moment ago. Times count from the first span of the list.
  struct Span {
    size_t lane = 0;  // index into lanes
    std::string_view work{};
    int64_t start_us = 0;
    int64_t end_us = 0;
  };
  struct Memory {
    std::string name;
    uint64_t used_bytes = 0;
    uint64_t limit_bytes = 0;
    std::vector<std::pair<std::string, uint64_t>> uses{};  // bytes by purpose
  };
  // Memory for keys and values.
  struct Kv {
    uint64_t used_bytes = 0;  // by running sequences
    uint64_t kept_bytes = 0;  // known prefixes, which may be used by running sequences too
    uint64_t limit_bytes = 0;
  };
  // The account of the predictor that names the experts to bring ahead.
  struct Predictor {
    std::string name{};
    int64_t foretold = 0;      // experts that it named
    int64_t participated = 0;  // foretold experts that some token chose
    int64_t judged = 0;        // passes in which its gain was measured
    int64_t followed = 0;      // passes that followed it
    double gain = 0.0;         // share of the time that following it saves
  };

  int64_t running = 0;
  int64_t waiting = 0;
  int64_t passes = 0;
  int64_t experts_found = 0;  // in memory when a pass asked for them
  int64_t experts_asked = 0;
  int64_t experts_evicted = 0;
  double waited_share = 0.0;  // share of the time in which computing waited for transfers
  EngineCounters counters{};
  PrefetchBytes prefetch{};
  Predictor predictor{};
  Kv kv{};
  std::vector<Lane> lanes{};
  std::vector<Span> spans{};
  std::vector<Memory> memories{};
};

EngineFigures figures_of(Session& session);

// Samples in Prometheus' text format.
std::string prometheus_text(const EngineFigures& figures);
// Fields of the document that the dashboard asks for.
OrderedJson stats_of(const EngineFigures& figures);

// Lines of Prometheus' text format: the description of a metric, and a metric with one sample.
std::string prometheus_head(std::string_view name, std::string_view type, std::string_view help);
std::string prometheus_sample(std::string_view name, std::string_view type, std::string_view help,
                              int64_t value);

}  // namespace klotski
