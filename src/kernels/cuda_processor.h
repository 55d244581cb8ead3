#pragma once

#include <cstdint>
#include <memory>

#include "device/device.h"
#include "kernels/ops.h"

namespace klotski {

// Bytes that products take of the arena that a device's processor is given; the rest of the arena
// is ProcessorMemory's.
inline constexpr uint64_t kCudaProductWorkspace = uint64_t{32} << 20;

// A processor with every operation on a device, which lives longer. It computes while it has an
// arena (ArenaUse), which throws device_unavailable where the libraries for products are not
// installed; scratch_bytes() can be asked without an arena.
//
// Inputs of products are rounded to the 16-bit type of the weights where the precision asks for no
// more; sums are float32. Equal calls on equal numbers give equal bits, but a row's result may
// depend on how many rows are computed with it.
//
// Operations run one after the other on a stream of their own, operations of several processors at
// the same time; they begin before their calls return. ProcessorMemory::finish waits for them. One
// thread at a time calls a processor.
std::unique_ptr<const Processor> make_cuda_processor(Device& device);

}  // namespace klotski
