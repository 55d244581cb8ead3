#pragma once

#include <filesystem>
#include <vector>

namespace klotski {

// The processors this process may run on, by the system's numbers; empty if the system does not
// say.
std::vector<int> allowed_cpus();

// How many threads can run at once: the processors allowed, less where a control group's quota
// (version 1 or 2, every level up to the root) grants less time than that. At least 1.
int usable_cpus();

// The quota's part of usable_cpus() from given places of /proc and /sys/fs/cgroup, for tests.
int usable_cpus(int allowed, const std::filesystem::path& proc,
                const std::filesystem::path& cgroups);

}  // namespace klotski
