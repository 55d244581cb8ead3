#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "kernels/ops.h"
#include "model/description.h"
#include "probe/random_weights.h"

namespace klotski {

// The processor's name as /proc/cpuinfo, or a file like it, has it: "model name", or the numbers of
// implementer, part, variant and revision. "unknown" where it has neither.
std::string processor_name(const std::filesystem::path& cpuinfo = "/proc/cpuinfo");

// The processor, in words, and on how many threads of the program.
struct ComputedWith {
  std::string kernels;
  int threads = 1;
};

// All that a profile depends on, as text: processor, kernels, threads, program, shapes and types of
// the model, precision, the file system that holds its file, where it has one.
std::string fingerprint(const ModelDescription& model, const StoredTypes& types,
                        const ComputedWith& with, Precision precision,
                        const std::optional<std::filesystem::path>& model_file);

}  // namespace klotski
