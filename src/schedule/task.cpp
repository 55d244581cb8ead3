#include "schedule/task.h"

#include <fmt/format.h>

#include <array>

#include "base/bytes.h"

namespace klotski {

namespace {

using UnitNames = std::array<std::string_view, kUnitKinds>;

// Static texts, as spans want them, by kind of unit.
constexpr UnitNames kLoadNames = {"load model", "load attention", "load gate", "load dense",
                                  "load expert"};
constexpr UnitNames kFetchNames = {"fetch model", "fetch attention", "fetch gate", "fetch dense",
                                   "fetch expert"};
static_assert(!kLoadNames.back().empty() && !kFetchNames.back().empty());

std::string_view span_name(const Task& task) {
  if (task.work == Work::fetch) return kFetchNames[index_of(task.unit.kind)];
  if (task.work == Work::load) return kLoadNames[index_of(task.unit.kind)];
  return work_name(task.work);
}

std::string format_resource(const Resource& resource) {
  constexpr std::array<std::string_view, 13> kNames = {
      "slot",   "hidden",  "normed",  "routing",  "outputs", "kv",           "stage",
      "logits", "results", "queries", "attended", "slice",   "slice outputs"};
  static_assert(kNames.size() == static_cast<size_t>(Place::slice_outputs) + 1);
  static_assert(!kNames.back().empty());
  std::string text =
      fmt::format("{} {}", kNames[static_cast<size_t>(resource.place)], resource.number);
  if (resource.kind != UnitKind::count_) {
    text = fmt::format("{}-{}", unit_kind_name(resource.kind), text);
  }
  return resource.tier == kComputeTier ? text
                                       : fmt::format("{} at {}", text, tier_name(resource.tier));
}

std::string format_resources(std::string_view label, const std::vector<Resource>& resources) {
  std::string text;
  for (const Resource& resource : resources) {
    text += fmt::format("{}{}", text.empty() ? "" : ", ", format_resource(resource));
  }
  return text.empty() ? "" : fmt::format("  {} {}", label, text);
}

std::string subject(const Task& task) {
  const TaskSubject named = kind_of(task.work).subject;
  std::string text(work_name(task.work));
  if (named == TaskSubject::unit) {
    if (task.sliced > 0) text += fmt::format(" {} outputs of", task.sliced);
    return fmt::format("{} {}", text, format_unit(task.unit));
  }
  if (named != TaskSubject::micro_batch) text += fmt::format(" layer {}", task.layer.value);
  if (named == TaskSubject::expert) text += fmt::format(" expert {}", task.unit.expert.value);
  if (task.sliced > 0) text += fmt::format(" sliced at {}", task.sliced);
  text += task.micro_batch == kWholeGroup ? " group" : fmt::format(" batch {}", task.micro_batch);
  return text;
}

}  // namespace

TimelineSpan span_of(const Task& task) {
  TimelineSpan span{.lane = task.lane,
                    .work = span_name(task),
                    .is_expert_work = kind_of(task.work).computes_experts,
                    .layer = task.layer.value,
                    .micro_batch = task.micro_batch,
                    .bytes = task.bytes,
                    .waited_for = {}};
  const bool of_expert =
      task.unit.kind == UnitKind::expert || kind_of(task.work).subject == TaskSubject::expert;
  if (of_expert) span.expert = task.unit.expert.value;
  return span;
}

std::string format_task(const Task& task) {
  std::string text = fmt::format("{:<9}  {:<28}", lane_name(task.lane), subject(task));
  if (task.bytes > 0) text += fmt::format("  {}", format_bytes(task.bytes));
  return text + format_resources("after", task.after) + format_resources("reads", task.reads) +
         format_resources("writes", task.writes) + format_resources("fills", task.fills);
}

std::string format_fragment(const Fragment& fragment) {
  std::string text;
  for (const Task& task : fragment) text += format_task(task) + "\n";
  return text;
}

}  // namespace klotski
