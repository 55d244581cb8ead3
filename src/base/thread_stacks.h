#pragma once

#include <cstdint>

#include "base/bytes.h"

namespace klotski {

// Address space of a thread's stack. Systems give 8 MiB where nobody says, which limits of address
// space and data (ulimit -v, -d) count in full; nothing here recurses outside the first thread.
inline constexpr uint64_t kThreadStackBytes = kMiB;

// Threads started from now on get stacks of kThreadStackBytes and, where address space is limited,
// no heaps of their own: the allocator would set 64 MiB aside for each.
void use_little_address_space_per_thread();

}  // namespace klotski
