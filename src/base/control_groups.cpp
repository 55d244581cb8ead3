#include "base/control_groups.h"

#include <fstream>

namespace klotski {

namespace {

// Does the list "cpu,cpuacct" name the controller?
bool names(const std::string& controllers, std::string_view controller) {
  return ("," + controllers + ",").find("," + std::string(controller) + ",") != std::string::npos;
}

}  // namespace

std::vector<ControlGroup> control_groups(const std::filesystem::path& proc,
                                         const std::filesystem::path& cgroups,
                                         std::string_view controller) {
  std::vector<ControlGroup> groups;
  std::ifstream file(proc / "self" / "cgroup");
  std::string line;
  while (std::getline(file, line)) {  // "id:controllers:path"
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const int version = controllers.empty() ? 2 : 1;  // version 2 has one tree for all
    if (version == 1 && !names(controllers, controller)) continue;
    std::filesystem::path folder = version == 2 ? cgroups : cgroups / controller;
    groups.push_back({folder, version});
    for (const auto& part : std::filesystem::path(line.substr(second + 1)).relative_path()) {
      if (part == "..") continue;  // seen from inside a container: its root is all there is
      folder /= part;
      groups.push_back({folder, version});
    }
  }
  return groups;
}

std::string first_line(const std::filesystem::path& path) {
  std::string line;
  std::ifstream file(path);
  std::getline(file, line);
  return line;
}

}  // namespace klotski
