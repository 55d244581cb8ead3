#include "model/stored_tensors.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "tensor/format.h"
#include "weights/gguf.h"

namespace klotski {

namespace {

[[noreturn]] void refuse_stored(const TensorSource& source, std::string_view name,
                                const std::string& why) {
  fail(ErrorKind::bad_model, "{}: tensor {}: {}", path_in_quotes(source.folder()), in_quotes(name),
       why);
}

// The source of a model's description, for messages.
std::string_view described_by(const TensorSource& source) {
  return is_gguf_file(source.folder()) ? "the metadata" : "config.json";
}

// The shape of a stored tensor with the rows of stacked matrices in one dimension.
Shape without_stacks(const Shape& stored, const TensorSpec& spec) {
  if (spec.stacked == 1 || stored.size() != 3 || stored[0] != spec.stacked) return stored;
  uint64_t rows = 0;
  if (!element_count({stored[0], stored[1]}, &rows)) return stored;
  return {static_cast<int64_t>(rows), stored[2]};
}

// Whether a stored tensor has the shape: files may leave out or add dimensions of one element in
// front, but not where slices count its rows. Rows of all matrices may be counted together.
bool has_shape(const TensorEntry& entry, const TensorSpec& spec, const Shape& expected) {
  if (spec.slice) {
    Shape together(expected.begin() + 1, expected.end());
    together[0] *= expected[0];
    return entry.shape == expected || (expected.size() > 2 && entry.shape == together);
  }
  const Shape stored = without_stacks(entry.shape, spec);
  const auto is_one = [](int64_t dimension) { return dimension == 1; };
  const auto begin = [&](const Shape& shape) {
    return std::find_if_not(shape.begin(), shape.end(), is_one);
  };
  return std::equal(begin(stored), stored.end(), begin(expected), expected.end());
}

// The matrix that is stored, of which the tensor may be some rows.
Shape stored_matrix(const TensorSpec& spec) {
  Shape matrix = spec.shape;
  if (spec.slice) matrix[0] = spec.slice->rows;
  return matrix;
}

// The shape of a tensor in a file that holds this part of each of its matrices.
Shape stored_shape(const TensorSpec& spec, Shape part) {
  if (spec.slice) part.insert(part.begin(), spec.slice->matrices);
  return part;
}

// The matrix as a file has it where it has plain elements.
Shape plain_matrix(const TensorSpec& spec) {
  Shape matrix = stored_matrix(spec);
  if (spec.slice && spec.slice->transposed) std::reverse(matrix.begin(), matrix.end());
  return matrix;
}

// Bytes of some rows, from row `first` on, of the matrix of a stored tensor that a slice names.
// Each of its matrices has `matrix_rows` rows there.
StoredRange rows_of_part(const TensorEntry& entry, const StoredSlice& slice, int64_t matrix_rows,
                         int64_t first, int64_t rows) {
  const auto stored_rows = static_cast<uint64_t>(slice.matrices * matrix_rows);
  const uint64_t row_bytes = stored_rows == 0 ? 0 : entry.bytes / stored_rows;
  const auto row = static_cast<uint64_t>(slice.index * matrix_rows + first);
  return {entry.shard, entry.offset + row * row_bytes, static_cast<uint64_t>(rows) * row_bytes};
}

// Bytes of a whole matrix in a stored tensor, or of its whole side tensor.
StoredRange whole_matrix(const TensorEntry& entry, const std::optional<StoredSlice>& slice) {
  if (!slice) return {entry.shard, entry.offset, entry.bytes};
  return rows_of_part(entry, *slice, 1, 0, 1);
}

// Two halves whose rows alternate become one after the other.
void divide_halves(StoredRange& matrix, int64_t rows) {
  const auto row_bytes = static_cast<int64_t>(matrix.bytes / static_cast<uint64_t>(rows));
  matrix.turns.push_back({rows / 2, 2, row_bytes});
}

// Places the numbers; rows that lie between others take the whole matrix that they lie in.
void place_numbers(StoredTensor& tensor, const TensorEntry& entry) {
  const std::optional<StoredSlice>& slice = tensor.spec.slice;
  if (!slice || format_of(tensor.dtype).transposed) {
    tensor.numbers = whole_matrix(entry, slice);
    return;
  }
  const bool packed = is_packed(tensor.dtype);
  if (!slice->takes_whole_matrix(packed)) {
    tensor.numbers =
        rows_of_part(entry, *slice, slice->rows, slice->first_row, tensor.spec.shape[0]);
    return;
  }
  tensor.numbers = whole_matrix(entry, slice);
  if (slice->transposed && !packed) {
    tensor.numbers.turns.push_back(
        {tensor.spec.shape.at(1), slice->rows, bytes_per_element(tensor.dtype)});
  }
  if (slice->interleaved) divide_halves(tensor.numbers, slice->rows);
  tensor.first_byte = static_cast<uint64_t>(slice->first_row) *
                      (tensor.numbers.bytes / static_cast<uint64_t>(slice->rows));
}

StoredTensor plain_tensor(const TensorSource& source, TensorSpec spec) {
  const TensorEntry& entry = source.require(spec.name);
  const Shape expected = stored_shape(spec, plain_matrix(spec));
  if (!has_shape(entry, spec, expected)) {
    refuse_stored(source, spec.name,
                  fmt::format("{} implies shape {}, found {}", described_by(source),
                              format_shape(expected), format_shape(entry.shape)));
  }
  if (!format_of(entry.dtype).expand) {
    refuse_stored(source, spec.name,
                  fmt::format("expected type F32, F16 or BF16, found {}", dtype_name(entry.dtype)));
  }
  StoredTensor tensor{.spec = std::move(spec), .dtype = entry.dtype, .numbers = {}, .sides = {}};
  place_numbers(tensor, entry);
  return tensor;
}

const TensorEntry& checked_part(const TensorSource& source, const TensorSpec& spec,
                                const StoredPart& part) {
  const TensorEntry& entry = source.require(part.name.of(spec.name));
  const Shape expected = stored_shape(spec, part.shape);
  if (entry.dtype != part.dtype || !has_shape(entry, spec, expected)) {
    refuse_stored(source, entry.name,
                  fmt::format("{} implies {} of shape {}, found {} of shape {}",
                              described_by(source), dtype_name(part.dtype), format_shape(expected),
                              dtype_name(entry.dtype), format_shape(entry.shape)));
  }
  return entry;
}

// Whether a tensor takes the side tensors of the whole matrix that its rows lie in: they do not
// follow each other, or do not begin with a block of rows.
bool takes_whole_sides(const StoredSlice& slice, const WeightFormat& format) {
  return slice.interleaved ||
         std::any_of(format.sides.begin(), format.sides.end(), [&](const SideTensor& side) {
           return slice.first_row % side.block_rows != 0;
         });
}

void place_sides(StoredTensor& tensor, std::span<const TensorEntry* const> entries) {
  const WeightFormat& format = format_of(tensor.dtype);
  const std::optional<StoredSlice>& slice = tensor.spec.slice;
  const bool whole = !slice || format.transposed || takes_whole_sides(*slice, format);
  if (slice && whole) tensor.first_row = slice->first_row;
  const Shape matrix = stored_matrix(tensor.spec);
  for (size_t i = 0; i < entries.size(); ++i) {
    const SideTensor& side = format.sides[i];
    if (whole) {
      StoredRange& range = tensor.sides.emplace_back(whole_matrix(*entries[i], slice));
      if (slice && slice->interleaved) divide_halves(range, slice->rows);
      continue;
    }
    tensor.sides.push_back(rows_of_part(*entries[i], *slice, side.shape(matrix).at(0),
                                        slice->first_row / side.block_rows,
                                        side.shape(tensor.spec.shape).at(0)));
  }
}

// Why a tensor of this place cannot be of a packed format, or nothing.
std::string why_not_there(const TensorSpec& spec, UnitKind kind, const WeightFormat& format) {
  if (!format.is_file_type && !format.in_any_unit && !may_be_packed(kind)) {
    return fmt::format(
        "only matrices of experts and dense feed-forward parts may be {}; expected "
        "{} of type F32, F16 or BF16",
        format.name, in_quotes(spec.name));
  }
  if (spec.shape.size() != 2) {
    return fmt::format("expected type F32, F16 or BF16 for a vector, found {}", format.name);
  }
  if (format.transposed && spec.slice && spec.slice->rows != spec.shape[0]) {
    return fmt::format("expected a tensor for each matrix of {}, found several matrices in one",
                       format.name);
  }
  const bool shares_rows = std::any_of(format.sides.begin(), format.sides.end(),
                                       [](const SideTensor& side) { return side.block_rows != 1; });
  if (spec.slice && spec.slice->interleaved && shares_rows) {
    return fmt::format("expected rows of {} in the order of their matrix, found two that alternate",
                       format.name);
  }
  return "";
}

StoredTensor packed_tensor(const TensorSource& source, UnitKind kind, TensorSpec spec,
                           DType dtype) {
  const WeightFormat& format = format_of(dtype);
  const std::string name = format.file_name.of(spec.name);
  const std::string wrong = why_not_there(spec, kind, format);
  if (!wrong.empty()) refuse_stored(source, name, wrong);
  const std::vector<StoredPart> parts = stored_parts(dtype, stored_matrix(spec));
  if (parts.empty()) {
    refuse_stored(source, name,
                  fmt::format("{} implies shape {}, which cannot be {}: {}", described_by(source),
                              format_shape(spec.shape), format.name,
                              why_not_packed(format, stored_matrix(spec))));
  }
  StoredTensor tensor{.spec = std::move(spec), .dtype = dtype, .numbers = {}, .sides = {}};
  place_numbers(tensor, checked_part(source, tensor.spec, parts[0]));
  std::vector<const TensorEntry*> sides;
  for (size_t i = 1; i < parts.size(); ++i) {
    sides.push_back(&checked_part(source, tensor.spec, parts[i]));
  }
  place_sides(tensor, sides);
  return tensor;
}

// Tensors of a matrix in this format, all of which the source has; else 0. Among formats that have
// the numbers under one name, the one with the most is the matrix's: zero points are not left out.
size_t parts_found(const TensorSource& source, const TensorSpec& spec, DType dtype) {
  const std::vector<StoredPart> parts = stored_parts(dtype, stored_matrix(spec));
  const bool all = std::all_of(parts.begin(), parts.end(), [&](const StoredPart& part) {
    const TensorEntry* entry = source.find(part.name.of(spec.name));
    return entry != nullptr && entry->dtype == part.dtype &&
           has_shape(*entry, spec, stored_shape(spec, part.shape));
  });
  return all ? parts.size() : 0;
}

// The formats in which a tensor may lie in files that know only elements, those of the
// configuration last.
std::vector<DType> possible_formats(std::span<const DType> stated) {
  std::vector<DType> formats;
  for (int i = kFileDTypeCount; i < format_count(); ++i) {
    const WeightFormat& format = format_of(static_cast<DType>(i));
    if (!format.is_file_type && !format.is_stated) formats.push_back(static_cast<DType>(i));
  }
  formats.insert(formats.end(), stated.begin(), stated.end());
  return formats;
}

}  // namespace

bool packing_saves(DType dtype, const Shape& shape) {
  const WeightFormat& format = format_of(dtype);
  return why_not_packed(format, shape).empty() &&
         format.row_bytes(shape[1]) < bytes_per_row(format.values, shape[1]);
}

NewTensor tensor_in_file(const TensorSpec& spec, DType dtype) {
  const std::vector<StoredPart> parts =
      stored_parts(dtype, is_packed(dtype) ? stored_matrix(spec) : plain_matrix(spec));
  if (parts.empty()) {
    fail(ErrorKind::internal, "tensor {} of shape {} cannot be {}", in_quotes(spec.name),
         format_shape(spec.shape), dtype_name(dtype));
  }
  return {parts[0].name.of(spec.name), parts[0].dtype, stored_shape(spec, parts[0].shape)};
}

StoredTensor find_stored(const TensorSource& source, UnitKind kind, TensorSpec spec,
                         std::span<const DType> stated) {
  const TensorEntry* plain = source.find(spec.name);
  const TensorEntry* found = nullptr;  // the numbers of `packed`
  std::optional<DType> packed;
  if (plain != nullptr && is_packed(plain->dtype)) packed = plain->dtype;
  for (const DType dtype : possible_formats(stated)) {
    const WeightFormat& format = format_of(dtype);
    const TensorEntry* entry = source.find(format.file_name.of(spec.name));
    if (entry == nullptr || (entry == plain && entry->dtype != format.file_type)) continue;
    if (entry == found) {
      if (parts_found(source, spec, dtype) > parts_found(source, spec, *packed)) packed = dtype;
      continue;
    }
    if (packed || (plain != nullptr && entry != plain)) {
      refuse_stored(source, spec.name,
                    fmt::format("expected it once, found {} as well; remove one of them",
                                in_quotes(entry->name)));
    }
    packed = dtype;
    found = entry;
  }
  return packed ? packed_tensor(source, kind, std::move(spec), *packed)
                : plain_tensor(source, std::move(spec));
}

}  // namespace klotski
