#include "cli/bench_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace klotski {

namespace {

// The verdict on the predictor that the strategy follows; null where it follows none.
Json predictor_json(const PipelineReport& report) {
  if (!report.trial) return nullptr;
  return {{"name", report.predictor},
          {"judged_passes", report.trial->passes},
          {"followed_passes", report.trial->followed},
          {"gain", report.trial->gain}};
}

}  // namespace

Json as_json(const Setting& setting) {
  const Measurement& measured = setting.median();
  const PipelineReport& report = measured.report;
  Json lanes = Json::object();
  for (const Lane lane : report.totals.used_lanes()) {
    const LaneTotals& totals = report.totals.lane(lane);
    lanes[std::string(lane_name(lane))] = {{"busy_percent", report.totals.percent(totals.busy)},
                                           {"busy_seconds", in_seconds(totals.busy)},
                                           {"bytes", totals.bytes}};
  }
  Json accuracy = Json::array();
  for (const LayerAccuracy& layer : report.accuracy) {
    accuracy.push_back({{"layer", layer.layer.value},
                        {"foretold", layer.foretold},
                        {"participated", layer.participated},
                        {"truly_hot", layer.truly_hot}});
  }
  Json runs = Json::array();
  for (const Measurement& run : setting.runs) runs.push_back(run.tokens_per_second());
  return {{"setting", setting.name},
          {"strategy", strategy_name(measured.plan.policy.strategy)},
          {"cpu_attention", measured.plan.policy.division.attends_elsewhere()},
          {"n_batches", measured.plan.policy.group.micro_batches},
          {"micro_batch", measured.plan.policy.group.micro_batch},
          {"expert_slots", measured.plan.policy.layout.compute().slots[index_of(UnitKind::expert)]},
          {"tokens_per_second", measured.tokens_per_second()},
          {"tokens_per_second_of_all_runs", runs},
          {"prefill_tokens_per_second", measured.prefill_rate()},
          {"decode_tokens_per_second", measured.decode_rate()},
          {"drafted_tokens", report.drafts.drafted},
          {"accepted_tokens", report.drafts.accepted},
          {"seconds", measured.seconds},
          {"load_seconds", measured.load_seconds},
          {"predicted_tokens_per_second",
           measured.predicted ? Json(measured.predicted->tokens_per_second()) : Json(nullptr)},
          {"predicted_seconds",
           measured.predicted ? Json(measured.predicted->seconds()) : Json(nullptr)},
          {"lanes", lanes},
          {"bubbles_inter_layer_percent", report.totals.percent(report.totals.inter_layer)},
          {"bubbles_intra_layer_percent", report.totals.percent(report.totals.intra_layer)},
          {"expert_hits", report.experts.hits},
          {"expert_misses", report.experts.misses},
          {"prefetch_useful_bytes", report.prefetch.useful},
          {"prefetch_late_bytes", report.prefetch.late},
          {"prefetch_wasted_bytes", report.prefetch.wasted},
          {"stalled_seconds", in_seconds(report.totals.bubbles())},
          {"predictor", predictor_json(report)},
          {"prefetch_accuracy", accuracy}};
}

namespace {

// The busier one of the two lanes that bring weights.
Lane busiest_transfer(const TimelineTotals& totals) {
  const bool link = totals.lane(Lane::kToDevice).busy > totals.lane(Lane::kDiskRead).busy;
  return link ? Lane::kToDevice : Lane::kDiskRead;
}

}  // namespace

std::string settings_table(const std::vector<Setting>& settings) {
  std::string text =
      "| setting | n x batch | load s | tokens/s | gain | prefill tok/s | decode tok/s | compute "
      "busy | weights by | busy | GB/s | GB | bubbles inter + intra | experts found | prefetch "
      "useful / late / wasted GB "
      "|\n|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n";
  double previous = 0.0;
  for (const Setting& setting : settings) {
    const Measurement& measured = setting.median();
    const PipelineReport& report = measured.report;
    const Lane lane = busiest_transfer(report.totals);
    const LaneTotals& moved = report.totals.lane(lane);
    const double rate = measured.tokens_per_second();
    const double gigabytes = static_cast<double>(moved.bytes) / 1e9;
    const auto in_gigabytes = [](uint64_t bytes) { return static_cast<double>(bytes) / 1e9; };
    text += fmt::format(
        "| {} | {} x {} | {:.1f} | {:.3f} | {} | {:.2f} | {:.3f} | {:.1f} % | {} | {:.1f} % | "
        "{:.2f} | "
        "{:.1f} | "
        "{:.1f} % + {:.1f} % | {:.1f} % | {:.1f} / {:.1f} / {:.1f} |\n",
        setting.name, measured.plan.policy.group.micro_batches,
        measured.plan.policy.group.micro_batch, measured.load_seconds, rate,
        previous > 0 ? fmt::format("x{:.2f}", rate / previous) : "", measured.prefill_rate(),
        measured.decode_rate(), report.totals.percent(report.totals.lane(Lane::kCompute).busy),
        lane_name(lane), report.totals.percent(moved.busy),
        gigabytes / std::max(in_seconds(moved.busy), 1e-9), gigabytes,
        report.totals.percent(report.totals.inter_layer),
        report.totals.percent(report.totals.intra_layer), 100.0 * report.experts.hit_share(),
        in_gigabytes(report.prefetch.useful), in_gigabytes(report.prefetch.late),
        in_gigabytes(report.prefetch.wasted));
    previous = rate;
  }
  return text;
}

// The two lines of the paper's Figure 13.
std::string accuracy_table(const Setting& setting) {
  std::string text =
      "| layer | prefetched experts that participated | truly hot |\n|---|---|---|\n";
  for (const LayerAccuracy& layer : setting.median().report.accuracy) {
    const double foretold = std::max<double>(static_cast<double>(layer.foretold), 1.0);
    text += fmt::format("| {} | {:.1f} % | {:.1f} % |\n", layer.layer.value,
                        100.0 * static_cast<double>(layer.participated) / foretold,
                        100.0 * static_cast<double>(layer.truly_hot) / foretold);
  }
  return text;
}

std::string compared_output(const std::vector<Setting>& settings, bool on_device, bool one_work) {
  std::string text;
  const auto& first = settings.front().runs.front().generated;
  for (const Setting& setting : settings) {
    const bool alone = on_device || !one_work;
    const auto& expected = alone ? setting.runs.front().generated : first;
    // With other buffers other experts are computed by the CPU beside a device, which rounds
    // otherwise.
    const auto& slots = setting.runs.front().plan.memory.slots;
    for (const Measurement& run : setting.runs) {
      if (on_device && run.plan.memory.slots != slots) continue;
      if (run.generated != expected) {
        fail(ErrorKind::internal, "{} generated other tokens than {}", setting.name,
             alone ? "before" : settings.front().name);
      }
    }
    if (!on_device || !one_work) continue;
    size_t same = 0;
    for (size_t i = 0; i < first.size(); ++i) same += expected[i] == first[i] ? 1 : 0;
    text += fmt::format("{}: {} of {} sequences as {}\n", setting.name, same, first.size(),
                        settings.front().name);
  }
  return text;
}

}  // namespace klotski
