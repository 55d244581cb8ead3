#include "probe/random_weights.h"

#include <algorithm>
#include <tuple>

#include "base/error.h"
#include "base/noise.h"
#include "model/unit_layout.h"
#include "tensor/format.h"

namespace klotski {

namespace {

constexpr uint64_t kAlignment = 256;  // bytes; alignment of each tensor

uint64_t rounded_part(uint64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// The numbers of a tensor and its side tensors, as files would have them.
std::vector<StoredPart> parts_of(const TensorSpec& spec, const StoredTypes& types) {
  std::vector<StoredPart> parts = stored_parts(types[static_cast<size_t>(spec.role)], spec.shape);
  if (parts.empty()) {
    fail(ErrorKind::bad_model, "a tensor of shape {} is too large", format_shape(spec.shape));
  }
  return parts;
}

uint64_t tensor_bytes(const TensorSpec& spec, const StoredTypes& types) {
  uint64_t bytes = 0;
  for (const StoredPart& part : parts_of(spec, types)) bytes += rounded_part(part.bytes);
  return bytes;
}

uint64_t copies_that_fit(uint64_t each, RandomWeights::Bytes bytes) {
  constexpr uint64_t kMostCopies = 512;  // for units so small that threads take longer to wake
  const uint64_t wanted = std::min((bytes.wanted + each - 1) / each, kMostCopies);
  return std::max<uint64_t>(std::min(wanted, bytes.most / each), 1);
}

}  // namespace

StoredTypes stored_types(const ModelDescription& model, const TensorSource& checkpoint) {
  std::array<std::array<int, kMostDTypes>, std::tuple_size_v<StoredTypes>> found{};
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
  const NoiseBits pattern = format_of(type).noise;
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
      TensorView view{.dtype = type, .shape = spec.shape};
      const std::vector<StoredPart> parts = parts_of(spec, types);
      for (size_t i = 0; i < parts.size(); ++i) {
        const auto place = arena_.bytes().subspan(at, rounded_part(parts[i].bytes));
        arena_.fill_random(place, i == 0 ? type : parts[i].dtype);
        (i == 0 ? view.data : view.sides[i - 1]) = place.data();
        at += place.size();
      }
      copy.set(spec.role, std::move(view));
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
