#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace klotski {

// Processors and the memory that is near to them. Either may be missing.
struct NumaNode {
  int id = 0;
  std::vector<int> cpus;
  uint64_t memory_bytes = 0;

  bool operator==(const NumaNode&) const = default;
};

// Nodes by id; empty where the system does not say.
std::vector<NumaNode> numa_nodes();

// The nodes whose memory this process may take, by its cpuset and by its policy (numactl --membind)
// where the system says that; empty where it says neither.
std::vector<int> memory_nodes();

// NUMA nodes and memory nodes read from other folders, for tests: sys stands for /sys, proc for
// /proc. The policy of the process is left out.
std::vector<NumaNode> numa_nodes(const std::filesystem::path& sys);
std::vector<int> memory_nodes(const std::filesystem::path& proc);

}  // namespace klotski
