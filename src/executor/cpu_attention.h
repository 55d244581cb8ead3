#pragma once

#include <optional>
#include <vector>

#include "executor/compute_memory.h"
#include "executor/micro_batch.h"
#include "executor/shared_rows.h"
#include "schedule/task.h"

namespace klotski {

// Attention that the CPU computes for a device, on caches in host memory: the inputs of new rows
// come down, the rows that attention gives go up. Each function is called by one thread
// at a time, in the order that the schedule declares; tasks name one of a few buffers.
class CpuAttention {
 public:
  // `with`: the CPU's arithmetic. Micro-batches have `most_rows` at most. References must live
  // longer.
  CpuAttention(const Arithmetic& with, const PagedKvCache& cache, const ComputeMemory& memory,
               int64_t most_rows);

  // The device's buffers: for inputs that come down, and for results that went up.
  AttentionRows inputs_on_device(const Task& task, int64_t rows) const;
  Rows attended_on_device(const Task& task, int64_t rows) const;
  // Keeps copies of the layer's weights that attention reads besides projections, if it has any,
  // for the CPU: they lie on the device.
  void keep_weights(LayerId layer, const WeightSet& weights, ProcessorMemory& device);

  void queries_down(const Task& task, int64_t rows);
  void run(const Task& task, const MicroBatch& micro_batch);
  void attended_up(const Task& task, int64_t rows);

 private:
  struct KeptWeight {
    Role role;
    std::vector<std::byte> bytes;
    TensorView view;
  };

  AttentionRows inputs(float* at, LayerId layer, int64_t rows) const;
  Rows attended(float* at, LayerId layer, int64_t rows) const;

  Arithmetic with_;
  const PagedKvCache& cache_;
  int64_t attended_at_;  // floats of a buffer before the rows that attention gives
  SharedRows rows_;
  // Copies by layer, written once before the layer's first attention: the CPU may read them while
  // the device runs tasks of later micro-batches.
  std::vector<std::optional<std::vector<KeptWeight>>> weights_;
};

}  // namespace klotski
