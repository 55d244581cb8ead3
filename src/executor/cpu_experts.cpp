#include "executor/cpu_experts.h"

#include <new>
#include <numeric>

#include "executor/quietly.h"
#include "schedule/group_bytes.h"

namespace klotski {

std::vector<size_t> begin_by_expert(std::span<const RoutedRows> parts, int64_t experts) {
  std::vector<size_t> begin(static_cast<size_t>(experts) + 1, 0);
  for (const RoutedRows& part : parts) {
    for (const ExpertId expert : part.experts) ++begin[static_cast<size_t>(expert.value) + 1];
  }
  std::partial_sum(begin.begin(), begin.end(), begin.begin());
  return begin;
}

CpuExperts::CpuExperts(const Arithmetic& with, WeightSlots& slots, const ComputeMemory& memory,
                       int64_t most_rows)
    : with_(with),
      slots_(slots),
      rows_(memory, "experts on the CPU", shared_row_bytes(with.model, most_rows)),
      computed_(new (rows_.on_host(0) + exchanged_expert_row_bytes(with.model, most_rows) /
                                            sizeof(float)) std::atomic<uint32_t>(0)) {}

void CpuExperts::begin(int64_t rows, float* on_device) {
  to_come_up_ = computed_->load();  // experts given up in the pass before never came up
  count_ = rows;
  rows_.lie_at(on_device);
}

void CpuExperts::begin_rows_down(ProcessorMemory& operations, StreamMark mark) {
  rows_.begin_down(0, {0, count_ * with_.model.hidden},
                   [&](CopyQueue& down) { operations.let_copies_wait(down, mark); });
}

// The choices are sorted while rows come.
void CpuExperts::finish_rows_down(std::span<const RoutedRows> parts, LayerId layer) {
  const auto sort = [&] {
    const FeedForward& part = with_.model.layer(layer).feed_forward;
    const int64_t experts = part.experts;
    sorted_.begin = begin_by_expert(parts, experts);
    sorted_.in_rows.resize(sorted_.begin.back());
    sorted_.out_rows.resize(sorted_.begin.back());
    sorted_.scales.resize(part.scales_inputs ? sorted_.begin.back() : 0);
    with_.ops.sort_by_expert(parts, experts, sorted_.in_rows, sorted_.out_rows, sorted_.scales);
    std::iota(sorted_.out_rows.begin(), sorted_.out_rows.end(), 0);
  };
  begin_or_finish(sort, [&] { rows_.finish_down(); });
  rows_.finish_down();
}

void CpuExperts::run(std::span<const Task* const> tasks) {
  // Counts the experts even where computing them throws: copies to the device wait for the count.
  const CountedAtEnd<uint32_t> counted{*computed_, static_cast<uint32_t>(tasks.size())};
  std::vector<ChosenExpert> chosen;
  chosen.reserve(tasks.size());
  for (const Task* task : tasks) {
    const auto expert = static_cast<size_t>(task->unit.expert.value);
    const size_t begin = sorted_.begin[expert];
    const size_t count = sorted_.begin[expert + 1] - begin;
    std::span<const float> scales = sorted_.scales;
    if (!scales.empty()) scales = scales.subspan(begin, count);
    chosen.push_back({.weights = slots_.expert_in_host(task->unit, task->slot, task->sliced),
                      .in_rows = std::span(sorted_.in_rows).subspan(begin, count),
                      .out_rows = std::span(sorted_.out_rows).subspan(begin, count),
                      .in_scales = scales});
  }
  const int64_t width = with_.model.hidden;
  const Rows rows{rows_.on_host(0), count_, width};
  const Rows outputs{rows.row(count_), std::ssize(sorted_.in_rows), width};
  run_experts(with_, outputs, rows, chosen, tasks[0]->layer);
}

void CpuExperts::begin_rows_up(std::span<const Task* const> tasks) {
  std::vector<FloatRange> results;
  results.reserve(tasks.size());
  for (const Task* task : tasks) {
    const ExpertId expert = task->unit.expert;
    results.push_back({first_output(expert), outputs(expert) * with_.model.hidden});
  }
  to_come_up_ += static_cast<uint32_t>(tasks.size());
  rows_.begin_up(0, results, *computed_, to_come_up_);
}

int64_t CpuExperts::outputs(ExpertId expert) const {
  const auto index = static_cast<size_t>(expert.value);
  return static_cast<int64_t>(sorted_.begin[index + 1] - sorted_.begin[index]);
}

int64_t CpuExperts::first_output(ExpertId expert) const {
  const size_t begin = sorted_.begin[static_cast<size_t>(expert.value)];
  return (count_ + static_cast<int64_t>(begin)) * with_.model.hidden;
}

}  // namespace klotski
