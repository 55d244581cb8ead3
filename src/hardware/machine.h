#pragma once

// Which memories, links and processors a machine has: pure data, without their rates.

#include <vector>

#include "base/tier.h"
#include "timeline/lane.h"

namespace klotski {

// A way for bytes from one memory to another; of memories that are not disks in both directions.
struct Link {
  TierId from;  // the memory that is further from the processors
  TierId to;

  auto operator<=>(const Link&) const = default;
};

struct Machine {
  std::vector<TierId> tiers;       // nearest to the processors first
  std::vector<Link> links;         // between these
  std::vector<TierId> processors;  // the tiers that something computes at

  // Every lane on which a schedule may put tasks, in the order of the lanes. Rows and keys and
  // values go both ways along a link; rows go to where something computes.
  std::vector<Lane> lanes() const;
};

// The CPU computes with weights that a disk holds.
Machine cpu_over_disk();
// A device computes, and the CPU beside it, with weights in the program's memory and on a disk.
Machine device_over_host();

}  // namespace klotski
