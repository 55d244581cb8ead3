#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace klotski {

// A Linux control group that bounds this process: a folder of small files with limits and counts.
struct ControlGroup {
  std::filesystem::path folder;
  int version = 2;  // the files of version 1 and 2 have different names
};

// The groups of one controller ("memory", "cpu") this process is in, from the root to its own: each
// of them may set a limit. `proc` and `cgroups` are /proc and /sys/fs/cgroup.
std::vector<ControlGroup> control_groups(const std::filesystem::path& proc,
                                         const std::filesystem::path& cgroups,
                                         std::string_view controller);

// The first line of a small file; empty if there is none.
std::string first_line(const std::filesystem::path& path);

}  // namespace klotski
