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
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace klotski {

// One tensor of a model's files.
struct TensorEntry {
  std::string name;
  DType dtype = DType::F32;  // an element type, or a packed format where the file knows such
  uint32_t shard = 0;        // file of the source; 0 where there is only one
  Shape shape;
  uint64_t offset = 0;  // first byte, from the start of the file
  uint64_t bytes = 0;
};

// The tensors of a model and the files they lie in, whatever kind of files these are. Opening one
// reads no weights. Reads may come from several threads at once.
class TensorSource {
 public:
  virtual ~TensorSource() = default;

  // Tensors in the order of their names, none twice. Everything that an entry says was checked: its
  // bytes lie within its file and are as many as its type and shape take.
  const std::vector<TensorEntry>& tensors() const { return tensors_; }
  const TensorEntry* find(std::string_view name) const;  // null where there is none
  const TensorEntry& require(std::string_view name) const;
  uint64_t total_bytes() const { return total_bytes_; }

  // The folder of the rest of the model, or the model's first file where that is GGUF.
  const std::filesystem::path& folder() const { return folder_; }
  virtual size_t shard_count() const = 0;  // 0: the tensors lie in no files
  // The file behind TensorEntry::shard. It stays open as long as the caller keeps it. file() and
  // the functions that read refuse (internal) where there are no files.
  virtual std::shared_ptr<const File> file(uint32_t shard) const = 0;

  // Reads the whole tensor, or out.size() bytes of it from byte `offset` of the tensor on.
  void read(const TensorEntry& entry, std::span<std::byte> out) const;
  void read_range(const TensorEntry& entry, uint64_t offset, std::span<std::byte> out) const;

 protected:
  explicit TensorSource(const std::filesystem::path& folder) : folder_(folder) {}
  TensorSource(TensorSource&&) = default;
  TensorSource& operator=(TensorSource&&) = default;

  // Adds to the tensors and their bytes; false where these are 2^64 or more.
  [[nodiscard]] bool add_tensors(std::vector<TensorEntry> entries);
  // Sorts the tensors, after the last was added. Refuses (bad_model) a name that is there twice.
  void sort_by_name();
  virtual std::string shard_name(uint32_t shard) const = 0;  // name for messages

 private:
  std::filesystem::path folder_;
  std::vector<TensorEntry> tensors_;
  uint64_t total_bytes_ = 0;
};

}  // namespace klotski
