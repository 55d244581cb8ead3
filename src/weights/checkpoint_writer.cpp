#include "weights/checkpoint_writer.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "base/json.h"
#include "weights/front_to_back.h"
#include "weights/output_file.h"

namespace klotski {

namespace {

constexpr size_t kMaxShardTensors = 100'000;  // keeps a header far smaller than its limit

// Tensors first .. first + count - 1 of the list.
struct Shard {
  size_t first = 0;
  size_t count = 0;
};

std::vector<Shard> plan_shards(const std::vector<NewTensor>& tensors, uint64_t max_shard_bytes) {
  std::vector<Shard> shards(1);
  uint64_t filled = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const uint64_t bytes = bytes_of(tensors[i]);
    const bool full = filled + bytes > max_shard_bytes || shards.back().count >= kMaxShardTensors;
    if (full && shards.back().count > 0) {
      shards.push_back({.first = i});
      filled = 0;
    }
    filled += bytes;
    ++shards.back().count;
  }
  return shards;
}

struct Piece {
  size_t tensor;  // index of the tensor in its shard
  uint64_t offset;
  uint64_t bytes;
};

void add_pieces(std::vector<Piece>& pieces, size_t index, const NewTensor& tensor) {
  const uint64_t bytes = bytes_of(tensor);
  uint64_t piece = kWrittenPieceBytes;
  const bool rows = tensor.shape.size() == 2 && tensor.shape[0] > 0;
  const uint64_t row = rows ? bytes / static_cast<uint64_t>(tensor.shape[0]) : 0;
  if (row > 0 && row <= piece) piece -= piece % row;
  for (uint64_t at = 0; at < bytes; at += piece) {
    pieces.push_back({index, at, std::min(piece, bytes - at)});
  }
}

}  // namespace

size_t write_checkpoint(const std::filesystem::path& folder, const std::vector<NewTensor>& tensors,
                        const MakeBytes& make, const std::function<void(uint64_t bytes)>& written,
                        uint64_t max_shard_bytes) {
  const std::vector<Shard> shards = plan_shards(tensors, max_shard_bytes);
  Json weight_map = Json::object();  // sorted: looks names up fast
  uint64_t total = 0;
  std::mutex mutex;  // guards `written`
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string name =
        shards.size() == 1 ? "model.safetensors"
                           : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    const auto first = tensors.begin() + static_cast<std::ptrdiff_t>(shards[i].first);
    const std::vector<NewTensor> own(first, first + static_cast<std::ptrdiff_t>(shards[i].count));
    std::vector<Piece> pieces;
    for (size_t t = 0; t < own.size(); ++t) add_pieces(pieces, t, own[t]);
    SafetensorsWriter writer(folder / name, own);
    front_to_back(pieces.size(), [&](size_t p) {
      const Piece& piece = pieces[p];
      const auto buffer = std::make_unique_for_overwrite<std::byte[]>(piece.bytes);
      const std::span<std::byte> bytes(buffer.get(), piece.bytes);
      make(shards[i].first + piece.tensor, piece.offset, bytes);
      writer.write(piece.tensor, piece.offset, bytes);
      const std::lock_guard lock(mutex);
      written(bytes.size());
    });
    writer.finish();
    total += writer.data_bytes();
    for (const NewTensor& tensor : own) weight_map[tensor.name] = name;
  }
  if (shards.size() == 1) return 1;
  const Json index = {{"metadata", {{"total_size", total}}}, {"weight_map", std::move(weight_map)}};
  write_text_file(folder / "model.safetensors.index.json", index.dump(1) + "\n");
  return shards.size();
}

}  // namespace klotski
