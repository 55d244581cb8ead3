#pragma once

// The hierarchical roofline model of MoE-Lightning (section 3.2, equations 4 to 11): how fast an
// operation can run on the upper of two adjacent levels, or where its data lies on the lower one.
// The paper's level i is `upper` here and its level j `lower`: GPU memory over main memory, or main
// memory over a disk.

#include <string_view>

namespace klotski {

// A level: a memory and its processor.
struct Level {
  double peak_flops_per_second = 0;    // 0: no processor there, as for a disk
  double memory_bytes_per_second = 0;  // between this memory and its own processor
};

struct LevelPair {
  Level upper{};
  Level lower{};
  double link_bytes_per_second = 0;  // from the lower memory to the upper one
};

// An operation's arithmetic, and the bytes it reads of either memory. They differ where an
// operation is cut into micro-batches: weights cross the link once a batch and are read from the
// upper memory once a micro-batch.
struct Operation {
  double flops = 0;
  double upper_bytes = 0;  // from the upper memory, when computed there
  double lower_bytes = 0;  // from the lower memory, over the link or by its own processor

  // Operational intensities (definition 3.1) in FLOPs a byte; infinite where no byte is read.
  double upper_intensity() const;
  double lower_intensity() const;
};

// The limit of an operation; where two roofs are equally low, the first of them here.
enum class Roof {
  compute,  // equation 4
  memory,   // equation 5, of the level that computes
  link,     // equation 6
};
std::string_view roof_name(Roof roof);

struct Attainable {
  double flops_per_second = 0;
  Roof roof = Roof::compute;  // the roof that binds
};

// Computed above with its data fetched from the lower memory: the lowest of all three roofs
// (equation 7).
Attainable attainable_above(const LevelPair& levels, const Operation& operation);

// Computed where its data lies (equation 8 for the lower level).
Attainable attainable_below(const LevelPair& levels, const Operation& operation);

// P1 (equation 9), a lower intensity: up to it the link is no faster than the lower processor, and
// moving the data does not pay. Equation 9 has the intensity on both sides; this is its solution. 0
// where moving always pays: nothing computes below, or the link outruns the lower memory.
double first_turning_point(const LevelPair& levels);

// P2 (equation 10), a lower intensity: below it the link binds, from it on a roof of the upper
// level. Depends on the operation's upper intensity, that is on its micro-batches. At least P1
// unless the upper processor, its data already there, is slower than the lower one at its peak.
double second_turning_point(const LevelPair& levels, const Operation& operation);

// Whether computing where the data lies is at least as fast as moving it up. Equivalent to a lower
// intensity of at most P1, except where the upper level's own roofs are the lower ones.
bool better_below(const LevelPair& levels, const Operation& operation);

}  // namespace klotski
