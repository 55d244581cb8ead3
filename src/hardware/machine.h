#pragma once

// The memories, links and processors of a machine: pure data, without their rates.

#include <vector>

#include "base/tier.h"
#include "timeline/lane.h"

namespace klotski {

// A way for bytes from one memory to another; in both directions where neither is a disk.
struct Link {
  TierId from;  // the memory that is further from the processors
  TierId to;

  auto operator<=>(const Link&) const = default;
};

struct Machine {
  std::vector<TierId> tiers;       // nearest to the processors first
  std::vector<Link> links;         // links between these tiers
  std::vector<TierId> processors;  // the tiers that something computes at

  // Every lane on which a schedule may put tasks, in the order of the lanes. Rows and keys and
  // values go both ways along a link; rows go to where something computes.
  std::vector<Lane> lanes() const;
};

// The CPU computes with weights that a disk holds.
Machine cpu_over_disk();
// A machine with a device, a CPU that computes too, and weights in the program's memory and on a
// disk.
Machine device_over_host();

}  // namespace klotski
