#include "synth/synthetic_source.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/error.h"
#include "kernels/cpu/cpu_ops.h"

namespace klotski {

namespace {

// Made by a thread at a time: small enough that the threads end together with an expert of a few
// MiB, large enough that a row made twice at its ends does not count.
constexpr uint64_t kPieceElements = 1 << 16;

struct Piece {
  const TensorSpec* spec;
  uint64_t first;  // element
  std::span<std::byte> bytes;
};

}  // namespace

SyntheticSource::SyntheticSource(ModelDescription model, uint64_t seed, double share, DType dtype)
    : model_(std::move(model)), fill_(model_, seed, share, dtype) {}

void SyntheticSource::read(const WeightUnit& unit, const UnitLayout& layout,
                           std::span<std::byte> buffer) {
  const std::vector<TensorSpec> specs = unit_tensors(model_, unit);
  const auto element = static_cast<uint64_t>(bytes_per_element(fill_.dtype()));
  std::vector<Piece> pieces;
  for (const PlacedTensor& tensor : layout.tensors) {
    const auto spec = std::find_if(specs.begin(), specs.end(), [&](const TensorSpec& candidate) {
      return candidate.role == tensor.role;
    });
    if (spec == specs.end() || tensor.shape != spec->shape || tensor.dtype != fill_.dtype() ||
        tensor.bytes > buffer.size() || tensor.arrives_at > buffer.size() - tensor.bytes) {
      fail(ErrorKind::internal, "{}: its layout or buffer is not that of the generated model",
           format_unit(unit));
    }
    const std::span<std::byte> bytes = buffer.subspan(tensor.arrives_at, tensor.bytes);
    for (uint64_t at = 0; at < bytes.size(); at += kPieceElements * element) {
      const uint64_t size = std::min(kPieceElements * element, bytes.size() - at);
      pieces.push_back({&*spec, at / element, bytes.subspan(at, size)});
    }
  }
  const auto make = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const Piece& piece = pieces[static_cast<size_t>(i)];
      fill_.fill(*piece.spec, unit.layer, piece.first, piece.bytes);
    }
  };
  cpu::machine().pool.parallel_for(std::ssize(pieces), make);
}

}  // namespace klotski
