#include "schedule/task.h"

#include <fmt/format.h>

#include <array>

#include "base/bytes.h"

namespace klotski {

namespace {

// Static texts, as spans want them.
std::string_view load_name(UnitKind kind) {
  constexpr std::array<std::string_view, kUnitKinds> kNames = {
      "load model", "load attention", "load gate", "load dense", "load expert"};
  return kNames[index_of(kind)];
}
std::string_view fetch_name(UnitKind kind) {
  constexpr std::array<std::string_view, kUnitKinds> kNames = {
      "fetch model", "fetch attention", "fetch gate", "fetch dense", "fetch expert"};
  return kNames[index_of(kind)];
}
std::string_view span_name(const Task& task) {
  if (task.work == Work::fetch) return fetch_name(task.unit.kind);
  return task.work == Work::load ? load_name(task.unit.kind) : work_name(task.work);
}

std::string format_resource(const Resource& resource) {
  constexpr std::array<std::string_view, 18> kNames = {
      "slot",    "below",         "hidden",         "normed",     "routing",       "outputs",
      "kv",      "stage",         "logits",         "rows below", "outputs below", "arrived",
      "queries", "queries below", "attended below", "attended",   "slice",         "slice outputs"};
  const std::string_view name = kNames[static_cast<size_t>(resource.place)];
  if (resource.kind != UnitKind::count_) {
    return fmt::format("{}-{} {}", unit_kind_name(resource.kind), name, resource.number);
  }
  return fmt::format("{} {}", name, resource.number);
}

std::string format_resources(std::string_view label, const std::vector<Resource>& resources) {
  std::string text;
  for (const Resource& resource : resources) {
    text += fmt::format("{}{}", text.empty() ? "" : ", ", format_resource(resource));
  }
  return text.empty() ? "" : fmt::format("  {} {}", label, text);
}

bool of_one_expert(Work work) {
  return work == Work::expert || work == Work::rows_up || work == Work::scatter;
}

std::string subject(const Task& task) {
  std::string text(work_name(task.work));
  if (task.work == Work::fetch || task.work == Work::load || task.work == Work::settle) {
    if (task.sliced > 0) text += fmt::format(" {} outputs of", task.sliced);
    return fmt::format("{} {}", text, format_unit(task.unit));
  }
  if (task.work != Work::embed && task.work != Work::logits) {
    text += fmt::format(" layer {}", task.layer.value);
  }
  if (of_one_expert(task.work)) text += fmt::format(" expert {}", task.unit.expert.value);
  if (task.sliced > 0) text += fmt::format(" sliced at {}", task.sliced);
  text += task.micro_batch == kWholeGroup ? " group" : fmt::format(" batch {}", task.micro_batch);
  return text;
}

}  // namespace

std::string_view work_name(Work work) {
  constexpr std::array<std::string_view, 18> kNames = {
      "fetch",        "load",        "settle",       "embed",  "attention", "project",
      "queries down", "attended up", "project back", "gate",   "expert",    "rows down",
      "rows up",      "scatter",     "combine",      "logits", "load KV",   "store KV"};
  return kNames[static_cast<size_t>(work)];
}

TimelineSpan span_of(const Task& task) {
  TimelineSpan span{.lane = task.lane,
                    .work = span_name(task),
                    .is_expert_work = task.work == Work::expert,
                    .layer = task.layer.value,
                    .micro_batch = task.micro_batch,
                    .bytes = task.bytes,
                    .waited_for = {}};
  const bool of_expert = task.unit.kind == UnitKind::expert || of_one_expert(task.work);
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
