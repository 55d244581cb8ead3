#include "engine/run_inputs.h"

#include "base/cpu_limit.h"
#include "base/process_memory.h"
#include "base/thread_stacks.h"

namespace klotski {

namespace {

// Stacks of the threads that a run starts: for the lanes, for the loops of the arithmetic and,
// where io_uring is refused, for reading. Memory holds the touched part of them, limits of address
// space all.
uint64_t stacks_of_a_run(const Target& target, const PipelineOptions& options) {
  const size_t lanes = (target.device ? device_over_host() : cpu_over_disk()).lanes().size();
  const size_t threads =
      lanes + static_cast<size_t>(usable_cpus()) + static_cast<size_t>(options.disk.queue_depth);
  return threads * kThreadStackBytes;
}

}  // namespace

MachineMemory machine_memory(const Target& target, const PipelineOptions& options) {
  MachineMemory memory{.left = memory_left(),
                       .resident_bytes = resident_bytes(),
                       .stack_bytes = stacks_of_a_run(target, options)};
  if (target.host) {
    memory.held_weight_bytes = target.host->weights.bytes();
    memory.pinned_bytes = target.host->weights.pinned_bytes();
  }
  if (target.device) {
    memory.device = {.own_bytes = target.device->own_bytes(),
                     .own_bytes_at_start = target.device_own_bytes,
                     .free_bytes = target.device->free_bytes(),
                     .processor_bytes = target.ops_bytes};
  }
  return memory;
}

RunInputs run_inputs(const ModelDescription& model, const UnitLayouts& layouts,
                     const Target& target, const PipelineOptions& options) {
  return {.model = model,
          .layouts = layouts,
          .processor = target.ops,
          .cpu = target.cpu,
          .memory = machine_memory(target, options),
          .span_bytes = static_cast<uint64_t>(options.keep_spans) * sizeof(TimelineSpan),
          .source_bytes = options.source ? options.source->memory_bytes() : 0,
          .may_spill = !options.spill_folder.empty()};
}

}  // namespace klotski
