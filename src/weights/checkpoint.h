#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "weights/safetensors.h"
#include "weights/shard_files.h"

namespace klotski {

// The tensors of a model folder, whether they lie in one safetensors file or in many. Opening reads
// the headers only. Reads may come from several threads at once.
class Checkpoint {
 public:
  // Takes the files that model.safetensors.index.json names; without it model.safetensors; without
  // that the only *.safetensors file. Refuses an index that disagrees with the files: a file or
  // tensor missing, in another file than stated or in two, a total_size that is not theirs. Tensors
  // that a file has beyond the index are taken, as the Hugging Face loader does.
  static Checkpoint open(const std::filesystem::path& folder);

  // Tensors without files, whose bytes come from elsewhere (model/unit_source.h): of each its name,
  // type and shape count. They lie one after the other in the order given, as in a single file,
  // each at a multiple of kDescribedAlignment. `folder` is where the rest of the model is.
  static constexpr uint64_t kDescribedAlignment = 4096;
  static Checkpoint described(const std::filesystem::path& folder,
                              std::vector<TensorEntry> tensors);

  // In the order of their names.
  const std::vector<TensorEntry>& tensors() const { return tensors_; }
  const TensorEntry* find(std::string_view name) const;  // null where there is none
  const TensorEntry& require(std::string_view name) const;

  uint64_t total_bytes() const { return total_bytes_; }
  size_t shard_count() const { return files_->count(); }  // 0: described only
  const std::filesystem::path& folder() const { return folder_; }

  // The file behind TensorEntry::shard. It stays open as long as the caller keeps it. This and the
  // reads below refuse (internal) where there are no files.
  std::shared_ptr<const File> file(uint32_t shard) const;

  // Reads the whole tensor, or out.size() bytes of it from byte `offset` of the tensor on.
  void read(const TensorEntry& entry, std::span<std::byte> out) const;
  void read_range(const TensorEntry& entry, uint64_t offset, std::span<std::byte> out) const;

 private:
  explicit Checkpoint(const std::filesystem::path& folder);

  void open_indexed();
  void add_shard(const std::string& name);
  void sort_by_name();
  std::string shard_name(uint32_t shard) const;  // for messages

  std::filesystem::path folder_;
  std::unique_ptr<ShardFiles> files_;
  std::vector<TensorEntry> tensors_;
  uint64_t total_bytes_ = 0;
};

}  // namespace klotski
