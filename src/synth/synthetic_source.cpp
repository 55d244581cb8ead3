#include "synth/synthetic_source.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "synth/stored_tensor.h"
#include "tensor/format.h"

namespace klotski {

namespace {

// Made by a thread at a time: small enough that the threads end together with an expert of a few
// MiB, large enough that a row made twice at its ends does not count.
constexpr uint64_t kPieceBytes = 1 << 17;

struct Piece {
  const ModelTensor* tensor;
  uint64_t offset;
  std::span<std::byte> bytes;
};

// Byte of a stored tensor at which the part of a unit with the tensor's numbers begins.
uint64_t first_stored_byte(const ModelTensor& tensor, uint64_t part_bytes) {
  const std::optional<StoredSlice>& slice = tensor.spec.slice;
  if (!slice) return 0;
  if (slice->takes_whole_matrix(is_packed(tensor.dtype))) {
    return static_cast<uint64_t>(slice->index) * part_bytes;
  }
  return static_cast<uint64_t>(slice->index * slice->rows + slice->first_row) *
         (part_bytes / static_cast<uint64_t>(tensor.spec.shape[0]));
}

}  // namespace

SyntheticSource::SyntheticSource(ModelDescription model, uint64_t seed, double share, DType dtype)
    : model_(std::move(model)), dtype_(dtype), fill_(model_, seed, share) {}

void SyntheticSource::read(const WeightUnit& unit, const UnitLayout& layout,
                           std::span<std::byte> buffer, const Processor& cpu) {
  std::vector<ModelTensor> tensors;
  for (TensorSpec& spec : unit_tensors(model_, unit)) {
    const DType type = type_of(spec, unit.kind, dtype_);
    tensors.push_back({std::move(spec), unit.layer, type});
  }
  std::vector<Piece> pieces;
  std::vector<bool> made(layout.parts.size(), false);
  for (const PlacedTensor& placed : layout.tensors) {
    const auto tensor = std::find_if(tensors.begin(), tensors.end(), [&](const ModelTensor& own) {
      return own.spec.role == placed.role;
    });
    const PlacedPart& part = layout.numbers_of(placed);
    if (tensor == tensors.end() || placed.shape != tensor->spec.shape ||
        placed.dtype != tensor->dtype || part.bytes > buffer.size() ||
        part.arrives_at > buffer.size() - part.bytes) {
      fail(ErrorKind::internal, "{}: its layout or buffer is not that of the generated model",
           format_unit(unit));
    }
    if (made[placed.part]) continue;  // by a tensor that shares the part
    made[placed.part] = true;
    const uint64_t first = first_stored_byte(*tensor, part.bytes);
    const uint64_t grain = grain_bytes(*tensor);
    const uint64_t piece = std::max(grain, kPieceBytes - kPieceBytes % grain);
    const std::span<std::byte> bytes = buffer.subspan(part.arrives_at, part.bytes);
    for (uint64_t at = 0; at < bytes.size(); at += piece) {
      pieces.push_back(
          {&*tensor, first + at, bytes.subspan(at, std::min(piece, bytes.size() - at))});
    }
  }
  const auto make = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const Piece& piece = pieces[static_cast<size_t>(i)];
      fill_stored(fill_, *piece.tensor, piece.offset, piece.bytes);
    }
  };
  cpu.parallel_for(std::ssize(pieces), make);
}

}  // namespace klotski
