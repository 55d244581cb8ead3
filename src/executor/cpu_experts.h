#pragma once

#include <span>
#include <vector>

#include "executor/shared_rows.h"
#include "executor/weight_slots.h"
#include "forward/layer.h"

namespace klotski {

// Index of each expert's first choice when choices are sorted (Processor::sort_by_expert), and
// their number at the end. The choices lie in the program's memory.
std::vector<size_t> begin_by_expert(std::span<const RoutedRows> parts, int64_t experts);

// Experts that the CPU computes for a device, in host memory: the group's rows come down, results
// go up. Each function is called by one thread at a time, in the order that the schedule declares.
class CpuExperts {
 public:
  // `with`: the CPU's arithmetic. Groups that it shares have `most_rows` at most. References must
  // live longer.
  CpuExperts(const Arithmetic& with, WeightSlots& slots, const ComputeMemory& memory,
             int64_t most_rows);

  // Begins a pass of `rows` rows; nothing of the pass before is under way. The rows lie
  // `on_device`, followed by room for a result for each of their choices.
  void begin(int64_t rows, float* on_device);

  // Brings the rows to the CPU, once the device's operations have come to the mark.
  void begin_rows_down(ProcessorMemory& operations, StreamMark mark);
  // Returns when the rows are there. `parts`: the group's choices, in the program's memory.
  void finish_rows_down(std::span<const RoutedRows> parts, LayerId layer);
  // Computes the experts of these tasks.
  void run(std::span<const Task* const> tasks);
  // Brings the results of these tasks' experts to the device, in the order of run(): as soon as
  // they are computed, where that has begun.
  void begin_rows_up(std::span<const Task* const> tasks);
  void finish_rows_up() { rows_.finish_up(); }
  // The queue that operations wait for before they read results, once begin_rows_up() was called.
  const CopyQueue& way_up() const { return rows_.way_up(); }
  // Results on the device, in the order of the choices: Processor::sort_by_expert.
  ConstRows arrived(ExpertId expert) const {
    return {rows_.on_device(0) + first_output(expert), outputs(expert), with_.model.hidden};
  }

 private:
  struct Sorted {
    std::vector<size_t> begin;      // by expert, and the end
    std::vector<int32_t> in_rows;   // rows that chose an expert, by expert
    std::vector<int32_t> out_rows;  // indices of results, one after the other
    std::vector<float> scales;      // factors of in_rows, or none
  };

  int64_t outputs(ExpertId expert) const;       // rows
  int64_t first_output(ExpertId expert) const;  // floats of the shared memory before its results

  Arithmetic with_;
  WeightSlots& slots_;
  int64_t count_ = 0;  // rows of the group
  // [rows][hidden] of the group, then [rows * choices][hidden] results; behind the most of them, in
  // the program's memory, the count.
  SharedRows rows_;
  Sorted sorted_;
  std::atomic<uint32_t>* computed_;  // experts, ever; where the device sees it
  uint32_t to_come_up_ = 0;          // value of the count when all results that have begun to come
                                     // up are there
};

}  // namespace klotski
