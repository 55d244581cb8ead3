#include "probe/random_weights.h"

#include <algorithm>
#include <tuple>

#include "base/error.h"
#include "base/noise.h"
#include "model/unit_layout.h"

namespace klotski {

namespace {

constexpr uint64_t kAlignment = 256;  // of each tensor

uint64_t tensor_bytes(const TensorSpec& spec, const StoredTypes& types) {
  uint64_t bytes = 0;
  if (!byte_count(spec.shape, types[static_cast<size_t>(spec.role)], &bytes)) {
    fail(ErrorKind::bad_model, "a tensor of shape {} is too large", format_shape(spec.shape));
  }
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// Which bits are random: sign, fraction and the lowest of the exponent. The others make numbers
// from 2^-7 to 2^-3.
struct BitPattern {
  uint64_t random;
  uint64_t fixed;
};

BitPattern pattern_of(DType type) {
  if (type == DType::F16) return {0x87FF87FF87FF87FFu, 0x2000200020002000u};
  // From 2^-31 to 1: the least upper bits of a row, and none or one number that it lists.
  if (type == DType::BF16_COMPACT) return {0x81FFFFFF0001FF07u, 0x3C00000000000030u};
  if (type == DType::BF16) return {0x81FF81FF81FF81FFu, 0x3C003C003C003C00u};
  return {0x81FFFFFF81FFFFFFu, 0x3C0000003C000000u};
}

uint64_t copies_that_fit(uint64_t each, RandomWeights::Bytes bytes) {
  constexpr uint64_t kMostCopies = 512;  // of units so small that the threads take longer to wake
  const uint64_t wanted = std::min((bytes.wanted + each - 1) / each, kMostCopies);
  return std::max<uint64_t>(std::min(wanted, bytes.most / each), 1);
}

}  // namespace

StoredTypes stored_types(const ModelDescription& model, const Checkpoint& checkpoint) {
  std::array<std::array<int, kDTypeCount>, std::tuple_size_v<StoredTypes>> found{};
  const auto take = [&](const WeightUnit& unit) {
    for (const PlacedTensor& tensor : layout_unit(model, checkpoint, unit).tensors) {
      ++found[static_cast<size_t>(tensor.role)][static_cast<size_t>(tensor.dtype)];
    }
  };
  take(model_unit());
  for (int64_t i = 0; i < model.layer_count(); ++i) {
    const LayerId layer(i);
    take(attention_unit(layer));
    take(gate_unit(layer));
    take(expert_unit(model, layer, ExpertId(0)));
  }
  StoredTypes types;
  types.fill(DType::F32);
  for (size_t role = 0; role < types.size(); ++role) {
    const auto most = std::max_element(found[role].begin(), found[role].end());
    if (*most > 0) types[role] = static_cast<DType>(most - found[role].begin());
  }
  return types;
}

uint64_t weight_bytes(std::span<const TensorSpec> specs, const StoredTypes& types) {
  uint64_t bytes = 0;
  for (const TensorSpec& spec : specs) bytes += tensor_bytes(spec, types);
  return bytes;
}

void fill_random(const Processor& cpu, std::span<std::byte> bytes, DType type) {
  constexpr int64_t kPiece = 1 << 17;  // words: 1 MiB
  const BitPattern pattern = pattern_of(type);
  auto* words = reinterpret_cast<uint64_t*>(bytes.data());
  const auto count = static_cast<int64_t>(bytes.size() / sizeof(uint64_t));
  cpu.parallel_for((count + kPiece - 1) / kPiece, [&](int64_t begin, int64_t end) {
    const int64_t last = std::min(end * kPiece, count);
    for (int64_t i = begin * kPiece; i < last; ++i) {
      words[i] = (noise_bits(0, static_cast<uint64_t>(i) + 1) & pattern.random) | pattern.fixed;
    }
  });
}

RandomWeights::RandomWeights(Tier& tier, const Processor& ops, const std::vector<TensorSpec>& specs,
                             const StoredTypes& types, Bytes bytes)
    : ops_(ops),
      specs_(specs),
      arena_(tier, ops, "weights",
             weight_bytes(specs, types) * copies_that_fit(weight_bytes(specs, types), bytes)),
      copies_(copies_that_fit(weight_bytes(specs, types), bytes)) {
  uint64_t at = 0;
  for (WeightSet& copy : copies_) {
    for (const TensorSpec& spec : specs_) {
      const DType type = types[static_cast<size_t>(spec.role)];
      const std::span<std::byte> place = arena_.bytes().subspan(at, tensor_bytes(spec, types));
      arena_.fill_random(place, type);
      copy.set(spec.role, {.data = place.data(), .dtype = type, .shape = spec.shape});
      at += place.size();
    }
  }
}

const WeightSet& RandomWeights::next() {
  next_ = (next_ + 1) % copies_.size();
  return copies_[next_];
}

void RandomWeights::arrange(Precision precision) {
  for (WeightSet& copy : copies_) {
    for (const TensorSpec& spec : specs_) {
      if (!may_be_arranged(copy, spec.role)) continue;
      TensorView view = copy[spec.role];
      std::byte* data = arena_.bytes().data() + (view.data - arena_.bytes().data());
      view.order = ops_.arrange(data, view.dtype, view.shape, precision);
      copy.set(spec.role, view);
    }
  }
}

}  // namespace klotski
