#include "hardware/run_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "base/bytes.h"

namespace klotski {

namespace {

std::string in_seconds_text(double seconds) { return fmt::format("{:.3f} s", seconds); }

// Names of all lanes of both, in the order of the first.
std::vector<std::string> lanes_of(const RunFigures& planned, const RunFigures& measured) {
  std::vector<std::string> names;
  for (const RunFigures* figures : {&planned, &measured}) {
    for (const LaneFigures& lane : figures->lanes) {
      if (std::find(names.begin(), names.end(), lane.lane) == names.end()) {
        names.push_back(lane.lane);
      }
    }
  }
  return names;
}

class Table {
 public:
  Table() { row("", "planned", "measured", "ratio"); }

  template <typename Number>
  void add(std::string_view label, Number planned, Number measured,
           const std::function<std::string(Number)>& shown) {
    const auto ratio =
        measured_over_planned(static_cast<double>(planned), static_cast<double>(measured));
    row(label, shown(planned), shown(measured), ratio ? fmt::format("{:.2f}", *ratio) : "-");
  }
  std::string take() { return std::move(text_); }

 private:
  void row(std::string_view label, const std::string& planned, const std::string& measured,
           const std::string& ratio) {
    text_ += fmt::format("{:<16}{:>12}{:>12}{:>8}\n", label, planned, measured, ratio);
  }

  std::string text_;
};

}  // namespace

double RunFigures::tokens_per_second() const {
  return seconds > 0 ? static_cast<double>(generated_tokens) / seconds : 0.0;
}

LaneFigures RunFigures::of_lane(std::string_view name) const {
  for (const LaneFigures& lane : lanes) {
    if (lane.lane == name) return lane;
  }
  return {.lane = std::string(name)};
}

std::optional<double> measured_over_planned(double planned, double measured) {
  if (!(planned > 0) || !(measured > 0)) return std::nullopt;
  return measured / planned;
}

std::string planned_beside_measured(const RunFigures& planned, const RunFigures& measured) {
  Table table;
  table.add<double>("time", planned.seconds, measured.seconds, in_seconds_text);
  table.add<double>("tokens/s", planned.tokens_per_second(), measured.tokens_per_second(),
                    [](double rate) { return fmt::format("{:.2f}", rate); });
  table.add<double>("prefill", planned.prefill_seconds, measured.prefill_seconds, in_seconds_text);
  table.add<double>("decode", planned.decode_seconds, measured.decode_seconds, in_seconds_text);
  for (const std::string& name : lanes_of(planned, measured)) {
    const LaneFigures of_plan = planned.of_lane(name);
    const LaneFigures of_run = measured.of_lane(name);
    table.add<double>(name, of_plan.busy_seconds, of_run.busy_seconds, in_seconds_text);
    if (of_plan.bytes == 0 && of_run.bytes == 0) continue;
    table.add<uint64_t>("", of_plan.bytes, of_run.bytes, format_bytes);
  }
  return table.take();
}

}  // namespace klotski
