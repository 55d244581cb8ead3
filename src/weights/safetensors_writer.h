#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "tensor/dtype.h"
#include "tensor/shape.h"
#include "weights/output_file.h"

namespace klotski {

struct NewTensor {
  std::string name;
  DType dtype = DType::F32;
  Shape shape;
};

// Refuses (internal) a tensor that has no size of whole bytes.
uint64_t bytes_of(const NewTensor& tensor);

// Data begins at a multiple of this, so that tensors of whole pages can be read past the page
// cache.
inline constexpr uint64_t kSafetensorsDataAlignment = 4096;

// Whether a file is one that SafetensorsWriter could have completed for these tensors: its header
// and its size are theirs.
bool has_tensors(const std::filesystem::path& path, const std::vector<NewTensor>& tensors);

// Writes one safetensors file: the header at once, then the data of its tensors, which lie one
// after the other in the order given. The data may come in pieces, in any order, from several
// threads.
class SafetensorsWriter {
 public:
  SafetensorsWriter(const std::filesystem::path& path, const std::vector<NewTensor>& tensors);

  // Bytes of tensor `index` from byte `offset` of it on.
  void write(size_t index, uint64_t offset, std::span<const std::byte> bytes);

  // Throws unless as many bytes were written as the header promises; then the file is complete.
  void finish();

  uint64_t data_bytes() const { return offsets_.back(); }

 private:
  OutputFile file_;
  std::vector<uint64_t> offsets_;  // tensors within the data, and the last one's end
  uint64_t data_start_ = 0;
  std::atomic<uint64_t> written_ = 0;
};

}  // namespace klotski
