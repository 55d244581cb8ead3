#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "memory/direct_file.h"
#include "memory/read_queue.h"

namespace klotski {

// Bytes of a file and where they go. Offset, length and destination are multiples of
// kDirectAlignment. The range may run beyond the file's end: the bytes up to the size at opening
// arrive, the bytes behind them in the destination have no meaning.
struct ReadExtent {
  const DirectFile* file = nullptr;
  uint64_t offset = 0;
  uint64_t bytes = 0;
  std::byte* destination = nullptr;
};

// Part of an extent that is asked for in one piece, and how far it has come.
struct ReadBlock {
  ReadExtent range;
  uint64_t wanted = 0;  // bytes of the range that the file has
  uint64_t done = 0;    // bytes that arrived; a multiple of kDirectAlignment until the end
  int fruitless = 0;    // answers in a row that brought nothing: interruptions, too short reads
  int failed = 0;       // answers in a row that were EIO

  // The bytes still to be read, aligned.
  ReadRequest request() const;
};

// Cuts extents into blocks.
class BlockCursor {
 public:
  // Throws where an extent is not aligned.
  BlockCursor(std::span<const ReadExtent> extents, uint64_t block_bytes);
  // False when there is no further block.
  bool next(ReadBlock* block);

 private:
  std::span<const ReadExtent> extents_;  // the first is being cut
  uint64_t block_bytes_;
  uint64_t cut_ = 0;  // bytes of the first extent that are in blocks already
};

enum class BlockState { complete, again, failed };

// Takes the answer to a block's request: bytes read, or a negative error number. Pauses before the
// request is made again where the answer was an error. `attempts` bounds EIO.
BlockState take_answer(ReadBlock& block, int64_t answer, int attempts);

// A block that cannot be had, and the last answer to its request.
struct ReadFailure {
  ReadBlock block;
  int64_t answer = 0;
};

[[noreturn]] void throw_failure(const ReadFailure& failure);

}  // namespace klotski
