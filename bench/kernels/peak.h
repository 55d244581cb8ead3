#pragma once

// Limits of this machine, measured before anything else runs.

namespace klotski::bench {

struct Rate {
  double one_thread = 0.0;
  double all_threads = 0.0;  // the threads that the operations compute with
};

struct Peak {
  Rate f32;   // floating-point operations a second of the chosen kernels' float32 instruction
  Rate bf16;  // ... and bf16; as float32 where they have no instruction for it
  Rate read;  // bytes a second from memory
};

// Measured at the first call, in under three seconds.
const Peak& peak();

// Puts the peak at the head of the benchmarks' report, be it a table or JSON.
void add_peak_to_context();

}  // namespace klotski::bench
