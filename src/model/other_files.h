#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "weights/tensor_source.h"

namespace klotski {

// An entry of a model's folder that its new folder does not have.
struct NotCopied {
  std::string name;
  std::string reason;  // "a folder", "other weights", "too large", or why it cannot be read
};

// The files of a model's folder that are none of its weights, without hidden entries.
struct OtherFiles {
  std::vector<std::string> names;
  std::vector<NotCopied> left_out;
  uint64_t bytes = 0;
};

// Lists the files to copy into a new folder of the model, including files that links of the folder
// lead to. Refuses (bad_model) a file that the model needs, such as its tokenizer, and that cannot
// be copied.
OtherFiles list_other_files(const TensorSource& checkpoint);

// Copies files. A file that cannot be read is left out, unless the model needs it; left_out is
// sorted then.
void copy_files(OtherFiles& files, const std::filesystem::path& from,
                const std::filesystem::path& to);

}  // namespace klotski
