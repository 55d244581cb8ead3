#pragma once

// The naive operations, written to be read: plain loops, no blocking, no vector instructions.

#include <memory>

#include "kernels/ops.h"

namespace klotski {

// The program's own memory, as the operations of a CPU use it: there is nothing to copy and nothing
// to wait for. A device made of the program's memory overrides the functions in which it differs.
class HostMemory : public ProcessorMemory {
 public:
  explicit HostMemory(bool readable_by_program = true) : ProcessorMemory(readable_by_program) {}

  std::byte* take(uint64_t bytes) override;
  void give_back(std::byte* memory, uint64_t bytes) override;
  void upload(std::byte* to, const void* from, uint64_t bytes) override;
  void download(void* to, const std::byte* from, uint64_t bytes) override;
  const std::byte* begin_download(const std::byte* from, uint64_t) override { return from; }
  void finish() override {}
  StreamMark mark() override { return {}; }
  void finish_to(StreamMark) override {}
  void wait_for_copies(const CopyQueue& copies) override;
  void let_copies_wait(CopyQueue&, StreamMark) override {}
  void lend(std::span<std::byte>) override {}
  void use_arena(std::span<std::byte>) override {}
};

namespace reference {

// The naive implementation: the oracle of every other one. Computes on the calling thread.
class ReferenceProcessor : public Processor {
 public:
  explicit ReferenceProcessor(
      std::unique_ptr<ProcessorMemory> own_memory = std::make_unique<HostMemory>())
      : Processor(std::move(own_memory)) {}

  KLOTSKI_OPERATIONS(KLOTSKI_OVERRIDE)
  std::string name() const override { return "reference"; }
};

float sigmoid_of(float value);

// The factor of a state a token: exp(-exp(log_decay) * softplus(step)).
float decay_of(float log_decay, float step);

// gate = activation(gate) * up, and as ClampedSwiglu says
void gate(Rows gate, ConstRows up, Activation activation, const ClampedSwiglu& swiglu = {});

}  // namespace reference

using reference::ReferenceProcessor;

}  // namespace klotski
