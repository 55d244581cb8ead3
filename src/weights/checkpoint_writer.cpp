#include "weights/checkpoint_writer.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <utility>

#include "base/error.h"
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

// Bytes of a row, which the last dimension counts; 0 where there are none.
uint64_t row_bytes_of(const NewTensor& tensor) {
  if (tensor.shape.size() < 2) return 0;
  Shape rows = tensor.shape;
  rows.pop_back();
  uint64_t count = 0;
  return element_count(rows, &count) && count > 0 ? bytes_of(tensor) / count : 0;
}

void add_pieces(std::vector<Piece>& pieces, size_t index, const NewTensor& tensor) {
  const uint64_t bytes = bytes_of(tensor);
  uint64_t piece = kWrittenPieceBytes;
  const uint64_t row = row_bytes_of(tensor);
  if (row > 0 && row <= piece) piece -= piece % row;
  for (uint64_t at = 0; at < bytes; at += piece) {
    pieces.push_back({index, at, std::min(piece, bytes - at)});
  }
}

// Writes one file, under a name of its own until it is complete.
class ShardWriter {
 public:
  ShardWriter(std::filesystem::path path, const std::vector<NewTensor>& tensors)
      : path_(std::move(path)), partial_(path_.native() + ".partial"), tensors_(tensors) {}

  bool is_complete() const {
    return std::filesystem::exists(path_) && has_tensors(path_, tensors_);
  }

  void write(const MakeBytes& make, const std::function<void(uint64_t bytes)>& written) {
    std::vector<Piece> pieces;
    for (size_t t = 0; t < tensors_.size(); ++t) add_pieces(pieces, t, tensors_[t]);
    std::filesystem::remove(partial_);  // a killed program left it
    SafetensorsWriter writer(partial_, tensors_);
    std::mutex mutex;  // guards `written`
    front_to_back(pieces.size(), [&](size_t p) {
      const Piece& piece = pieces[p];
      const auto buffer = std::make_unique_for_overwrite<std::byte[]>(piece.bytes);
      const std::span<std::byte> bytes(buffer.get(), piece.bytes);
      make(piece.tensor, piece.offset, bytes);
      writer.write(piece.tensor, piece.offset, bytes);
      const std::lock_guard lock(mutex);
      written(bytes.size());
    });
    writer.finish();
  }
  void publish() {
    std::error_code error;
    std::filesystem::rename(partial_, path_, error);
    if (error) {
      fail(ErrorKind::internal, "{}: cannot get its name: {}", path_in_quotes(path_),
           error.message());
    }
  }

 private:
  std::filesystem::path path_;
  std::filesystem::path partial_;
  const std::vector<NewTensor>& tensors_;
};

uint64_t bytes_of_all(const std::vector<NewTensor>& tensors) {
  uint64_t bytes = 0;
  for (const NewTensor& tensor : tensors) bytes += bytes_of(tensor);
  return bytes;
}

}  // namespace

size_t write_checkpoint(const std::filesystem::path& folder, const std::vector<NewTensor>& tensors,
                        const MakeBytes& make, const std::function<void(uint64_t bytes)>& written,
                        uint64_t max_shard_bytes, const ShardEvents& events) {
  const std::vector<Shard> shards = plan_shards(tensors, max_shard_bytes);
  Json weight_map = Json::object();  // sorted: looks names up fast
  uint64_t total = 0;
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string name =
        shards.size() == 1 ? "model.safetensors"
                           : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    const size_t begin = shards[i].first;
    const auto first = tensors.begin() + static_cast<std::ptrdiff_t>(begin);
    const std::vector<NewTensor> own(first, first + static_cast<std::ptrdiff_t>(shards[i].count));
    const uint64_t bytes = bytes_of_all(own);
    ShardWriter writer(folder / name, own);
    if (events.kept && writer.is_complete()) {
      events.kept(bytes);
    } else {
      writer.write([&](size_t tensor, uint64_t offset,
                       std::span<std::byte> out) { make(begin + tensor, offset, out); },
                   written);
      if (events.complete) events.complete(begin, own.size());
      writer.publish();
    }
    total += bytes;
    for (const NewTensor& tensor : own) weight_map[tensor.name] = name;
  }
  if (shards.size() == 1) return 1;
  const Json index = {{"metadata", {{"total_size", total}}}, {"weight_map", std::move(weight_map)}};
  write_text_file(folder / "model.safetensors.index.json", index.dump(1) + "\n");
  return shards.size();
}

}  // namespace klotski
