#include "cli/session_output.h"

#include <fmt/format.h>

#include <memory>
#include <optional>

#include "base/bytes.h"
#include "base/memory_limit.h"
#include "base/process_memory.h"
#include "cli/command.h"
#include "timeline/chrome_trace.h"
#include "timeline/svg.h"

namespace klotski {

namespace {

constexpr uint64_t kMaxWarmUpBytes = 64 * kMiB;

std::string strategy_in_words(const Policy& policy) {
  return describe_strategy(policy.strategy, policy.division.attends_elsewhere());
}

void print_plan(const RunPlan& plan) {
  write_err(format_memory_plan(plan.memory));
  if (plan.host) write_err(format_memory_plan(*plan.host));
  write_err(fmt::format("strategy {}, groups of {} x {} sequences\n",
                        strategy_in_words(plan.policy), plan.policy.group.micro_batches,
                        plan.policy.group.micro_batch));
}

// A remark on more memory than the machine has left, which runs are allowed to take all the same.
std::optional<std::string> beyond_machine(const SessionFlags& flags) {
  const std::optional<uint64_t> allowed = flags.options.limits.ram_bytes;
  const std::optional<uint64_t> left = memory_left().machine;
  if (!allowed || !left || *allowed <= *left + resident_bytes()) return std::nullopt;
  return fmt::format(
      "--ram {}: the machine has {} free; a run that takes more makes it swap or is killed\n",
      format_bytes(*allowed), format_bytes(*left));
}

}  // namespace

std::string plan_in_words(const RunPlan& plan) {
  const auto used = [](const MemoryPlan& memory) {
    std::string text = fmt::format("{} of {} of {}", format_bytes(memory.total_bytes()),
                                   format_bytes(memory.limit_bytes), memory.memory);
    for (const MemoryLine& line : memory.lines) {
      if (line.kind == "expert weights") text += fmt::format(", experts: {}", line.remark);
    }
    return text;
  };
  const GroupShape& group = plan.policy.group;
  return fmt::format("{}, groups of {} x {}, {}; {}{}", strategy_in_words(plan.policy),
                     group.micro_batches, group.micro_batch, precision_name(plan.policy.precision),
                     used(plan.memory), plan.host ? "; " + used(*plan.host) : "");
}

void tell_if_not_remembered(const std::string& why_not) {
  if (why_not.empty()) return;
  write_err(fmt::format("this run is not kept to learn from: {}\n", one_line(why_not)));
}

SessionEvents events_on_stderr(const SessionFlags& flags) {
  SessionEvents events;
  if (const auto remark = beyond_machine(flags)) write_err(*remark);
  events.remark = [](const Remark& remark) { write_err(remark.text + "\n"); };
  if (flags.show_plan || flags.verbose) {
    events.planned = print_plan;
  } else if (err_is_terminal()) {
    events.planned = [](const RunPlan& plan) {
      write_err(fmt::format("plan: {}\n", plan_in_words(plan)));
    };
  }
  events.progress = [status =
                         std::make_shared<std::optional<StatusLine>>()](const WorkProgress& now) {
    if (!*status) status->emplace(std::string(now.work), "bytes");
    (*status)->update(now.done_bytes, now.total_bytes);
    if (now.done_bytes >= now.total_bytes) status->reset();
  };
  return events;
}

void warm_up(const SessionFlags& flags, Session& session, const Tokenizer& tokenizer) {
  if (flags.warm_up.empty()) return;
  const std::string file = flags.warm_up == "sample" ? "" : flags.warm_up;
  session.warm_up(tokenizer, text_or_sample(file, "--warm-up", kMaxWarmUpBytes));
}

void write_session_files(const SessionFlags& flags, Session& session) {
  const std::vector<TimelineSpan> spans = session.pipeline().timeline().spans();
  const std::string model = session.model().folder.filename().string();
  if (!flags.trace_file.empty()) {
    write_argument_file(flags.trace_file, "--trace", [&](std::ostream& out) {
      write_chrome_trace(out, spans, "klotski " + model);
    });
  }
  if (!flags.timeline_file.empty()) {
    const TimelineBlock block = longest_typical_block(spans).value_or(TimelineBlock{});
    const RunPlan& plan = session.prepared().plan();
    const std::string title =
        fmt::format("{}: {}, layer {}", model, strategy_in_words(plan.policy), block.layer);
    const std::string settings = fmt::format("{}; {}", model, plan_in_words(plan));
    const std::vector<TimelineSpan> planned = session.predicted_spans();
    write_argument_file(flags.timeline_file, "--timeline", [&](std::ostream& out) {
      write_timeline_svg(out, {.spans = spans,
                               .block = block,
                               .title = title,
                               .settings = settings,
                               .planned = planned});
    });
  }
  if (!flags.save_correlation_file.empty()) {
    session.save_correlation_table(flags.save_correlation_file);
  }
  session.save_activation_history();
  if (flags.verbose) write_err(format_summary(session.prepared()));
}

std::string format_summary(PreparedModel& model) {
  const PipelineReport report = model.pipeline().report();
  const TimelineTotals& totals = report.totals;
  std::string text = fmt::format("{} passes in {:.2f} s, strategy {}\n", report.passes,
                                 in_seconds(totals.elapsed), strategy_in_words(model.policy()));
  for (const Lane used : totals.used_lanes()) {
    const LaneTotals& lane = totals.lane(used);
    text += fmt::format("  {:<10} busy {:5.1f} %", lane_name(used), totals.percent(lane.busy));
    if (lane.bytes > 0) {
      text += fmt::format("  {:>10}  {:.2f} GB/s while busy", format_bytes(lane.bytes),
                          static_cast<double>(lane.bytes) / 1e9 / in_seconds(lane.busy));
    }
    text += "\n";
  }
  text += fmt::format("  bubbles    {:.1f} % between layers, {:.1f} % between experts\n",
                      totals.percent(totals.inter_layer), totals.percent(totals.intra_layer));
  text += fmt::format("  experts    {} of {} requests found in memory ({:.1f} %), {} evicted\n",
                      report.experts.hits, report.experts.requests(),
                      100.0 * report.experts.hit_share(), report.experts.evictions);
  text += fmt::format("  prefetched {} useful, {} late, {} wasted\n",
                      format_bytes(report.prefetch.useful), format_bytes(report.prefetch.late),
                      format_bytes(report.prefetch.wasted));
  if (report.drafts.drafted > 0) {
    text += fmt::format("  drafts     {} of {} drafted tokens accepted\n", report.drafts.accepted,
                        report.drafts.drafted);
  }
  if (report.trial) {
    text += fmt::format(
        "  predictor  {}: followed in {} of {} passes, stalled {:.2f} s; following "
        "it saves {:.1f} % of the time by the latest judgement\n",
        report.predictor, report.trial->followed, report.trial->passes,
        in_seconds(totals.bubbles()), 100.0 * report.trial->gain);
  }
  const MemoryPlan& program = model.plan().host ? *model.plan().host : model.plan().memory;
  text += fmt::format("  memory     peak {}, planned {}, allowed {}\n",
                      format_bytes(peak_resident_bytes()), format_bytes(program.total_bytes()),
                      format_bytes(program.limit_bytes));
  if (model.host()) {
    text += fmt::format("             {} of {} of weights pinned\n",
                        format_bytes(model.host()->weights.pinned_bytes()),
                        format_bytes(model.host()->weights.bytes()));
    text += fmt::format("  VRAM       planned {}, allowed {}\n",
                        format_bytes(model.plan().memory.total_bytes()),
                        format_bytes(model.plan().memory.limit_bytes));
  }
  for (const TierUse& use : model.compute_tier().uses()) {
    text += fmt::format("    {:<18} {:>10}\n", use.kind, format_bytes(use.peak));
  }
  if (const int64_t pages = model.pipeline().cache().spill_capacity_pages(); pages > 0) {
    text += fmt::format("    {:<18} {:>10}  {}\n", "spilled KV",
                        format_bytes(model.policy().layout.compute().kv_spill_bytes),
                        model.host() ? "in RAM" : "on disk");
  }
  return text;
}

}  // namespace klotski
