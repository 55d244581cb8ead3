// Checkpoints of a training: a magic, a line of JSON with its length, then the network at hand, the
// best network (each with its length) and Adam's moments. Read without trust, as other files are.

#include <cmath>
#include <cstring>
#include <optional>

#include "base/bytes.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/new_file.h"
#include "base/noise.h"
#include "experts/path_training.h"

namespace klotski {

namespace {

constexpr std::string_view kCheckpointMagic = "KLPATHC1";
constexpr uint64_t kMaxCheckpointBytes = 16 * kGiB;

void put_block(std::string& to, std::string_view block) {
  const auto size = static_cast<uint64_t>(block.size());
  to.append(reinterpret_cast<const char*>(&size), sizeof(size));
  to += block;
}

std::span<const std::byte> take_block(std::span<const std::byte>& bytes, const std::string& what) {
  uint64_t size = 0;
  if (bytes.size() >= sizeof(size)) std::memcpy(&size, bytes.data(), sizeof(size));
  if (bytes.size() < sizeof(size) || size > bytes.size() - sizeof(size)) {
    fail(ErrorKind::bad_model, "{}: the checkpoint ends early; train without --resume", what);
  }
  const auto block = bytes.subspan(sizeof(size), size);
  bytes = bytes.subspan(sizeof(size) + size);
  return block;
}

template <typename Number>
uint64_t mixed(uint64_t sum, const std::vector<Number>& numbers) {
  for (const Number number : numbers) sum = mix(sum + kNoiseStep + static_cast<uint64_t>(number));
  return sum;
}

PathNetwork parse_network(std::span<const std::byte> bytes, const PathNetworkShape& shape,
                          const std::string& what) {
  PathNetwork network = PathNetwork::parse(bytes, what);
  if (network.shape() != shape) {
    fail(ErrorKind::bad_model, "{}: expected a network of this training, found another", what);
  }
  return network;
}

}  // namespace

// A number that other traces, splits or options would change.
uint64_t PathTraining::fingerprint() const {
  uint64_t sum =
      noise_key(options_.seed, fmt::format("{} {} {} {}", options_.epochs, options_.batch_chunks,
                                           options_.width, options_.learning_rate));
  for (const TracedSequences* part : {&data_.training, &data_.held_out}) {
    sum = mixed(sum, std::vector<size_t>{part->sequences.size()});
    for (const TracedSequence& sequence : part->sequences) {
      sum = mixed(sum, std::vector<size_t>{sequence.tokens.size()});
      sum = mixed(mixed(sum, sequence.tokens), sequence.choices);
    }
  }
  return sum;
}

std::string PathTraining::checkpoint_bytes() const {
  const Json header = {{"version", 1},
                       {"training", fmt::format("{:016x}", fingerprint())},
                       {"steps", steps()},
                       {"best_recall", best_recall_}};
  std::string bytes(kCheckpointMagic);
  put_block(bytes, header.dump());
  put_block(bytes, network_.bytes());
  put_block(bytes, best_.bytes());
  for (const neural::Matrix* moment : adam_.moments()) {
    bytes.append(reinterpret_cast<const char*>(moment->values.data()),
                 moment->values.size() * sizeof(float));
  }
  return bytes;
}

void PathTraining::parse_checkpoint(std::span<const std::byte> bytes, const std::string& what) {
  if (bytes.size() < kCheckpointMagic.size() ||
      std::memcmp(bytes.data(), kCheckpointMagic.data(), kCheckpointMagic.size()) != 0) {
    fail(ErrorKind::bad_model, "{}: expected a checkpoint of a training, which begins with {}",
         what, kCheckpointMagic);
  }
  bytes = bytes.subspan(kCheckpointMagic.size());
  const auto header = take_block(bytes, what);
  const Json document = parse_json(
      std::string_view(reinterpret_cast<const char*>(header.data()), header.size()), what);
  const JsonFields fields(document, what);
  fields.integer("version", 1, 1);
  if (fields.string("training") != fmt::format("{:016x}", fingerprint())) {
    fail(ErrorKind::usage,
         "{}: the checkpoint is of a training with other traces or options; give these again, or "
         "train without --resume",
         what);
  }
  const int64_t done = fields.integer("steps", 0, total_steps());
  const double recall = fields.number("best_recall", -1.0, 1.0);
  const PathNetwork network = parse_network(take_block(bytes, what), network_.shape(), what);
  PathNetwork best = parse_network(take_block(bytes, what), network_.shape(), what);
  const auto moment_bytes =
      static_cast<uint64_t>(network_.shape().parameters()) * 2 * sizeof(float);
  if (bytes.size() != moment_bytes) {
    fail(ErrorKind::bad_model, "{}: expected {} bytes of moments, found {}; train without --resume",
         what, moment_bytes, bytes.size());
  }
  std::vector<neural::Matrix*> moments = adam_.moments();
  for (size_t i = 0; i < moments.size(); ++i) {
    std::vector<float>& values = moments[i]->values;
    const size_t size = values.size() * sizeof(float);
    std::memcpy(values.data(), bytes.data(), size);
    bytes = bytes.subspan(size);
    const bool second = i >= moments.size() / 2;  // means of squares
    for (const float value : values) {
      if (std::isfinite(value) && (!second || value >= 0)) continue;
      fail(ErrorKind::bad_model, "{}: expected finite moments, found {}; train without --resume",
           what, value);
    }
  }
  const auto to = network_.parameters();
  for (size_t i = 0; i < to.size(); ++i) to[i]->value = network.parameters()[i]->value;
  adam_.set_steps(done);
  best_ = std::move(best);
  best_recall_ = recall;
}

void PathTraining::save_checkpoint(const std::filesystem::path& path) const {
  NewFile file(path);
  file.write(checkpoint_bytes());
  file.commit();
}

void PathTraining::load_checkpoint(const std::filesystem::path& path) {
  const std::string text = read_text_file(path, kMaxCheckpointBytes);
  parse_checkpoint(std::as_bytes(std::span(text)), path_in_quotes(path));
}

}  // namespace klotski
