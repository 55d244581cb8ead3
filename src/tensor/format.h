#pragma once

// Stored formats of weights: how the numbers of a matrix lie in files and in memory. A format is a
// row of one table, which format_of() reads. Whoever moves, cuts, reads or multiplies weights asks
// it; only the file of a format, its kernels and the command that writes it know which one it is.
//
// A matrix lies in rows. A row is a header, where the format has one, and then blocks of columns.
// Scales and zeros, which a format keeps apart from the numbers, lie in side tensors. In a
// transposed format the columns lie one after the other, and only expand() finds a row's numbers.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace klotski {

struct TensorView;

inline constexpr size_t kMostSideTensors = 3;  // side tensors of a format, at most
// Schedules cut the columns of an expert's matrices at multiples of this. Experts of a format whose
// blocks do not end there are not divided between processors.
inline constexpr int64_t kCutColumns = 64;

// The name of a tensor in files, made of the name of the matrix.
struct StoredName {
  std::string_view drop;  // taken off the end of the matrix's name, which may end otherwise
  std::string_view add;   // then put there

  std::string of(std::string_view matrix) const;
};

// A tensor of numbers about the numbers of a matrix: element [i][j], or [j][i] where it is
// transposed, is about block_rows rows from row i * block_rows on, and block_columns columns from
// column j * block_columns on.
struct SideTensor {
  StoredName name;
  DType dtype = DType::F16;
  int64_t block_rows = 1;
  int64_t block_columns = 1;
  bool transposed = false;

  Shape shape(const Shape& matrix) const;
  int64_t row_bytes(int64_t matrix_columns) const;
};

// Random bits that make finite numbers of no large magnitude, eight bytes at a time: `random` says
// which bits are random, `fixed` has the other bits.
struct NoiseBits {
  uint64_t random = 0x81FFFFFF81FFFFFFu;  // F32's sign, fraction and lowest bit of the exponent
  uint64_t fixed = 0x3C0000003C000000u;   // numbers from 2^-7 to 2^-3
};

struct WeightFormat {
  std::string_view name;
  DType values = DType::F32;  // the type of the numbers that expand() makes: F32, F16 or BF16
  // How files that know only the types of safetensors have a matrix: under this name, rows of
  // elements of this type.
  StoredName file_name;
  DType file_type = DType::U8;
  // Whether files have tensors of this very type, under the name of the matrix and of any number of
  // dimensions; file_name and file_type do not count then.
  bool is_file_type = false;
  // Whether matrices are of this format only in a model whose configuration says so
  // (ModelDescription::stated_formats): other formats have tensors of the same names.
  bool is_stated = false;
  // Whether any matrix of a model may be of this format, not only those of experts and dense parts.
  bool in_any_unit = false;
  // The shape that files give the numbers of a matrix; null: rows of blocks.
  Shape (*numbers_shape)(const Shape& matrix) = nullptr;
  // Whether the columns of a matrix are its outer dimension. A view of some rows or columns of such
  // a matrix begins where the whole matrix does.
  bool transposed = false;
  int64_t block_rows = 1;  // a matrix has a multiple of these rows
  int64_t block_columns = 1;
  int64_t block_bytes = 1;
  bool pads_last_block = false;  // false: a row has whole blocks
  int64_t most_columns = INT64_MAX;
  int64_t (*header_bytes)(int64_t columns) = nullptr;  // null: rows have no header
  uint64_t alignment = 1;                              // alignment of the first row, in bytes
  std::span<const SideTensor> sides;
  bool lossy = false;
  bool may_be_arranged = false;  // Processor::arrange accepts it
  NoiseBits noise;               // random bits for the numbers that files hold
  // A matrix whose numbers and only side tensor are joined while it is read: rows of the type
  // `becomes`, which take as many bytes as both, and which operations read. join() makes them where
  // the numbers lie, with the side tensor right behind them. Null: a matrix stays as files have it.
  DType becomes = DType::F32;
  void (*join)(std::byte* numbers, int64_t blocks) = nullptr;

  // Writes columns() numbers of the type `values`: row `row` of a view. Whatever the bytes of the
  // row are, nothing outside it and its side tensors is read. Null: no operation reads this format.
  void (*expand)(const TensorView& matrix, int64_t row, std::byte* out) = nullptr;
  // Makes one row of `columns` numbers of the type `values`; false where the format cannot hold
  // them. Null: this program does not write the format.
  bool (*pack)(const std::byte* numbers, int64_t columns, std::byte* row) = nullptr;

  int64_t header(int64_t columns) const { return header_bytes ? header_bytes(columns) : 0; }
  int64_t blocks_bytes(int64_t columns) const {
    return (columns + block_columns - 1) / block_columns * block_bytes;
  }
  int64_t row_bytes(int64_t columns) const { return header(columns) + blocks_bytes(columns); }
  // Whether matrices can be cut at any multiple of kCutColumns.
  bool can_be_cut() const { return !transposed && kCutColumns % block_columns == 0; }
};

// The format of a type. A type of files has a format of its own, whose blocks are elements.
const WeightFormat& format_of(DType dtype);
// Whether weights of a type are more than elements one after the other.
inline bool is_packed(DType dtype) { return static_cast<int>(dtype) >= kFileDTypeCount; }
// One more than the largest type that has a format.
int format_count();
// Gives a format beyond the program's own a type. The format must outlive every use of the type.
// Not while other threads use formats.
DType add_format(const WeightFormat& format);

// Why a tensor of this shape cannot be of a packed format ("columns: expected ..., found ..."), or
// an empty text.
std::string why_not_packed(const WeightFormat& format, const Shape& shape);

// A tensor as files have it.
struct StoredPart {
  StoredName name;
  DType dtype = DType::F32;
  Shape shape;
  uint64_t bytes = 0;
};
// The tensors that a matrix of this type is made of in files: its numbers, then its side tensors.
// A tensor of a file's own type is one part, itself. Empty where the shape cannot be of this type.
std::vector<StoredPart> stored_parts(DType dtype, const Shape& shape);

}  // namespace klotski
