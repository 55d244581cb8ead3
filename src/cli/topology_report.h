#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "base/numa.h"
#include "base/pci.h"

namespace klotski {

// The parts of the machine, and which of them this process may use.
struct Topology {
  std::vector<NumaNode> nodes;
  std::vector<int> cpus;          // processors this process may run on
  std::vector<int> memory_nodes;  // nodes whose memory it may take
  std::vector<DisplayDevice> displays;
};

Topology topology_here();

// Nodes, and display or 3D controllers with their links, for `klotski doctor`.
std::string topology_text(const Topology& topology);
Json topology_json(const Topology& topology);

// Links that run narrower than they could; nodes that this process may not use.
std::vector<std::string> topology_advice(const Topology& topology);

}  // namespace klotski
