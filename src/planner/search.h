#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "planner/prediction.h"

namespace klotski {

struct GroupSize {
  int64_t micro_batch = 1;    // sequences
  int64_t micro_batches = 1;  // n

  bool operator==(const GroupSize&) const = default;
};

// The sizes worth trying for so many sequences: micro-batches of powers of two, and numbers of them
// that grow by a third to a half. What is fixed stays as it is.
std::vector<GroupSize> group_sizes(int64_t sequences, std::optional<int64_t> micro_batch,
                                   std::optional<int64_t> micro_batches);

// A group that has been given its memory.
struct FittedGroup {
  Policy policy;
  int64_t at_once = 1;  // sequences for whose keys and values there is room
};

struct Candidate {
  GroupSize size;
  FittedGroup group;
  Prediction prediction;
};

// Every size that fits (`fit` gives nothing for one that does not), the one that generates most
// tokens a second first; of those within a hundredth of it the one with the smallest group.
std::vector<Candidate> search(const Machinery& with, const PlannedWork& work,
                              const std::vector<GroupSize>& sizes,
                              const std::function<std::optional<FittedGroup>(GroupSize)>& fit);

}  // namespace klotski
