#include "synth/synth.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <span>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "base/json.h"
#include "model/counts.h"
#include "synth/new_folder.h"
#include "synth/random_model.h"
#include "synth/tensor_fill.h"
#include "weights/output_file.h"
#include "weights/safetensors_writer.h"

namespace klotski {

namespace {

constexpr uint64_t kOtherBytes = 64 * kMiB;   // tokenizer, configuration and headers
constexpr size_t kMaxShardTensors = 100'000;  // keeps a header far below its limit
constexpr uint64_t kPieceElements = 1 << 19;  // made and written at a time
constexpr unsigned kMaxThreads = 8;

using Shard = std::vector<ModelTensor>;

uint64_t element_bytes(DType dtype) { return static_cast<uint64_t>(bytes_per_element(dtype)); }

std::vector<Shard> plan_shards(const ModelDescription& model, DType dtype,
                               uint64_t max_shard_bytes) {
  std::vector<Shard> shards(1);
  uint64_t filled = 0;
  for (ModelTensor& tensor : tensors_in_order(model)) {
    const uint64_t bytes = tensor.elements * element_bytes(dtype);
    const bool full = filled + bytes > max_shard_bytes || shards.back().size() >= kMaxShardTensors;
    if (full && !shards.back().empty()) {
      shards.emplace_back();
      filled = 0;
    }
    filled += bytes;
    shards.back().push_back(std::move(tensor));
  }
  return shards;
}

// Puts random values into the tensors of one file, several threads at once.
class ShardWork {
 public:
  ShardWork(const Shard& shard, const TensorFill& fill, SafetensorsWriter& writer,
            std::function<void(uint64_t)> written)
      : shard_(shard), fill_(fill), writer_(writer), written_(std::move(written)) {
    for (size_t i = 0; i < shard.size(); ++i) {
      for (uint64_t at = 0; at < shard[i].elements; at += kPieceElements) {
        pieces_.push_back({i, at});
      }
    }
  }

  void run() {
    const unsigned count = std::clamp(std::thread::hardware_concurrency(), 1u, kMaxThreads);
    std::vector<std::thread> threads;
    for (unsigned i = 1; i < count; ++i) threads.emplace_back([this] { work(); });
    work();
    for (std::thread& thread : threads) thread.join();
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  struct Piece {
    size_t tensor;
    uint64_t first;  // element
  };

  void work() {
    try {
      std::vector<std::byte> buffer(kPieceElements * element_bytes(fill_.dtype()));
      for (size_t i = next_++; i < pieces_.size(); i = next_++) write(pieces_[i], buffer);
    } catch (...) {
      next_ = pieces_.size();
      const std::lock_guard lock(mutex_);
      if (!failure_) failure_ = std::current_exception();
    }
  }

  void write(const Piece& piece, std::span<std::byte> buffer) {
    const ModelTensor& tensor = shard_[piece.tensor];
    const uint64_t size = element_bytes(fill_.dtype());
    const uint64_t elements = std::min(kPieceElements, tensor.elements - piece.first);
    const std::span<std::byte> bytes = buffer.first(elements * size);
    fill_.fill(tensor.spec, tensor.layer, piece.first, bytes);
    writer_.write(piece.tensor, piece.first * size, bytes);
    const std::lock_guard lock(mutex_);
    written_(bytes.size());
  }

  const Shard& shard_;
  const TensorFill& fill_;
  SafetensorsWriter& writer_;
  std::function<void(uint64_t)> written_;
  std::vector<Piece> pieces_;
  std::atomic<size_t> next_ = 0;
  std::mutex mutex_;  // of failure_ and written_
  std::exception_ptr failure_;
};

void write_weights(const std::filesystem::path& folder, const std::vector<Shard>& shards,
                   const TensorFill& fill, const std::function<void(uint64_t)>& written) {
  Json weight_map = Json::object();  // sorted: looks names up fast
  uint64_t total = 0;
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string name =
        shards.size() == 1 ? "model.safetensors"
                           : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    std::vector<NewTensor> tensors;
    for (const ModelTensor& tensor : shards[i]) {
      tensors.push_back({tensor.spec.name, fill.dtype(), tensor.spec.shape});
    }
    SafetensorsWriter writer(folder / name, tensors);
    ShardWork(shards[i], fill, writer, written).run();
    writer.finish();
    total += writer.data_bytes();
    if (shards.size() == 1) return;
    for (const NewTensor& tensor : tensors) weight_map[tensor.name] = name;
  }
  const Json index = {{"metadata", {{"total_size", total}}}, {"weight_map", std::move(weight_map)}};
  write_text_file(folder / "model.safetensors.index.json", index.dump(1) + "\n");
}

void check_space(const NewFolder& folder, uint64_t weights) {
  std::error_code error;
  const std::filesystem::space_info space = std::filesystem::space(folder.files(), error);
  const uint64_t needed = weights + kOtherBytes;
  if (error || space.available >= needed) return;
  fail(ErrorKind::does_not_fit, "{}: needs {} of disk, {} is free: {} too little",
       in_quotes(folder.name().native(), 300), format_bytes(needed), format_bytes(space.available),
       format_bytes(needed - space.available));
}

}  // namespace

SynthReport synthesise(const SynthOptions& options,
                       const std::function<void(uint64_t done, uint64_t total)>& progress,
                       uint64_t max_shard_bytes) {
  const RandomModel made = random_model(options);
  const ModelDescription& model = made.description;
  SynthReport report{.folder = {},
                     .family = model.family,
                     .parameters = count_parameters(model).total(),
                     .share = made.share};
  report.weight_bytes = static_cast<uint64_t>(report.parameters) * element_bytes(options.dtype);
  NewFolder folder(options.folder);
  report.folder = folder.name();
  check_space(folder, report.weight_bytes);
  write_files(made, folder.files());

  const std::vector<Shard> shards = plan_shards(model, options.dtype, max_shard_bytes);
  report.weight_files = shards.size();
  uint64_t done = 0;
  const TensorFill fill(model, options.seed, made.share, options.dtype);
  write_weights(folder.files(), shards, fill, [&](uint64_t bytes) {
    done += bytes;
    progress(done, report.weight_bytes);
  });
  folder.publish();
  return report;
}

}  // namespace klotski
