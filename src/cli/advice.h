#pragma once

#include <string>
#include <vector>

#include "hardware/profile.h"
#include "memory/disk_reader.h"

namespace klotski {

// Changes that would help this machine, one sentence each; `machine` where it was measured.
std::vector<std::string> machine_advice(ReadMethod disk_reads, const MachineProfile* machine);

}  // namespace klotski
