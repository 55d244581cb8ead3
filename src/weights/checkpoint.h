#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "weights/shard_files.h"
#include "weights/tensor_source.h"

namespace klotski {

// The tensors of a model: of a folder whose weights are safetensors, one file or many, or of GGUF
// files. Opening reads the headers only.
class Checkpoint : public TensorSource {
 public:
  // Takes the files that model.safetensors.index.json names; without it model.safetensors; without
  // that the only *.safetensors file. Refuses an index that disagrees with the files: a file or
  // tensor missing, in another file than stated or in two, a total_size that is not theirs. Tensors
  // that a file has beyond the index are taken, as the Hugging Face loader does.
  // A GGUF file is opened with its other shards, which lie beside it. Refuses a file that is not
  // the first of its shards, and shards that are missing or do not belong together.
  static Checkpoint open(const std::filesystem::path& folder_or_gguf);

  // Tensors without files, whose bytes come from elsewhere (model/unit_source.h): only names, types
  // and shapes count. They lie one after the other in the order given, as in a single file, each at
  // a multiple of kDescribedAlignment. `folder` is where the rest of the model is.
  static constexpr uint64_t kDescribedAlignment = 4096;
  static Checkpoint described(const std::filesystem::path& folder,
                              std::vector<TensorEntry> tensors);

  size_t shard_count() const override { return files_->count(); }  // 0: described only
  std::shared_ptr<const File> file(uint32_t shard) const override;

 private:
  explicit Checkpoint(const std::filesystem::path& folder);

  void open_indexed();
  void open_gguf();
  void add_entries(uint32_t shard, std::vector<TensorEntry> entries);
  void add_shard(const std::string& name);
  std::string shard_name(uint32_t shard) const override;

  std::unique_ptr<ShardFiles> files_;
};

}  // namespace klotski
