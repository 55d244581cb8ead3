#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <vector>

#include "weights/safetensors_writer.h"

namespace klotski {

inline constexpr uint64_t kMaxShardBytes = uint64_t{4} << 30;
inline constexpr uint64_t kWrittenPieceBytes = uint64_t{1} << 20;

// Makes bytes `offset` and on of a tensor of a list.
using MakeBytes = std::function<void(size_t tensor, uint64_t offset, std::span<std::byte> out)>;

// Calls by which a writer that was interrupted goes on where it was. Without them no file is kept.
struct ShardEvents {
  // A file of the list's tensors is complete already, and is kept: the bytes of its tensors.
  std::function<void(uint64_t bytes)> kept;
  // Tensors first .. first + count - 1 are written; their file gets its name when this returns.
  std::function<void(size_t first, size_t count)> complete;
};

// Writes the weights of a new model folder: model.safetensors, or several files of at most
// max_shard_bytes (or one tensor) each and their index. The bytes are made in pieces of about
// kWrittenPieceBytes, by several threads at once; pieces of a matrix are whole rows, unless its
// rows are longer. `written` gets the bytes of each piece, from one thread at a time. A file has
// its name when it is complete. Returns how many files there are.
size_t write_checkpoint(const std::filesystem::path& folder, const std::vector<NewTensor>& tensors,
                        const MakeBytes& make, const std::function<void(uint64_t bytes)>& written,
                        uint64_t max_shard_bytes = kMaxShardBytes, const ShardEvents& events = {});

}  // namespace klotski
