#include "planner/roofline.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace klotski {

namespace {

double intensity(double flops, double bytes) {
  return bytes > 0 ? flops / bytes : std::numeric_limits<double>::infinity();
}

// Not a plain product: a memory that is not read limits nothing, even one without bandwidth.
double sloping_roof(double bytes_per_second, double flops_per_byte) {
  return std::isinf(flops_per_byte) ? flops_per_byte : bytes_per_second * flops_per_byte;
}

bool positive(double value) { return std::isfinite(value) && value > 0; }
bool positive_or_zero(double value) { return std::isfinite(value) && value >= 0; }

void check(const LevelPair& levels) {
  const Level& upper = levels.upper;
  if (!positive(upper.peak_flops_per_second) || !positive(upper.memory_bytes_per_second) ||
      !positive(levels.link_bytes_per_second)) {
    fail(ErrorKind::internal,
         "roofline: the upper level and its link need positive rates, found {} FLOP/s, {} B/s, "
         "link {} B/s",
         upper.peak_flops_per_second, upper.memory_bytes_per_second, levels.link_bytes_per_second);
  }
  const Level& lower = levels.lower;
  if (!positive_or_zero(lower.peak_flops_per_second) ||
      !positive_or_zero(lower.memory_bytes_per_second) ||
      (lower.peak_flops_per_second > 0 && !positive(lower.memory_bytes_per_second))) {
    fail(ErrorKind::internal,
         "roofline: a lower level that computes needs a memory rate, found {} FLOP/s, {} B/s",
         lower.peak_flops_per_second, lower.memory_bytes_per_second);
  }
}

void check(const Operation& operation) {
  if (!positive(operation.flops) || !positive_or_zero(operation.upper_bytes) ||
      !positive_or_zero(operation.lower_bytes)) {
    fail(ErrorKind::internal,
         "roofline: an operation needs FLOPs and no negative bytes, found {} FLOPs, {} B above, {} "
         "B below",
         operation.flops, operation.upper_bytes, operation.lower_bytes);
  }
}

// Equation 8: an operation whose data is already in the memory of the level.
Attainable attainable_at(const Level& level, double flops_per_byte) {
  const double memory = sloping_roof(level.memory_bytes_per_second, flops_per_byte);
  if (level.peak_flops_per_second <= memory) return {level.peak_flops_per_second, Roof::compute};
  return {memory, Roof::memory};
}

}  // namespace

double Operation::upper_intensity() const { return intensity(flops, upper_bytes); }
double Operation::lower_intensity() const { return intensity(flops, lower_bytes); }

std::string_view roof_name(Roof roof) {
  switch (roof) {
    case Roof::compute:
      return "compute";
    case Roof::memory:
      return "memory";
    case Roof::link:
      return "link";
  }
  fail(ErrorKind::internal, "roofline: no roof has the number {}", static_cast<int>(roof));
}

Attainable attainable_above(const LevelPair& levels, const Operation& operation) {
  check(levels);
  check(operation);
  const Attainable own = attainable_at(levels.upper, operation.upper_intensity());
  const double link = sloping_roof(levels.link_bytes_per_second, operation.lower_intensity());
  return own.flops_per_second <= link ? own : Attainable{link, Roof::link};
}

Attainable attainable_below(const LevelPair& levels, const Operation& operation) {
  check(levels);
  check(operation);
  return attainable_at(levels.lower, operation.lower_intensity());
}

double first_turning_point(const LevelPair& levels) {
  check(levels);
  if (levels.lower.memory_bytes_per_second < levels.link_bytes_per_second) return 0;
  return levels.lower.peak_flops_per_second / levels.link_bytes_per_second;
}

double second_turning_point(const LevelPair& levels, const Operation& operation) {
  check(levels);
  check(operation);
  const Attainable own = attainable_at(levels.upper, operation.upper_intensity());
  return own.flops_per_second / levels.link_bytes_per_second;
}

bool better_below(const LevelPair& levels, const Operation& operation) {
  return attainable_below(levels, operation).flops_per_second >=
         attainable_above(levels, operation).flops_per_second;
}

}  // namespace klotski
