#include "batch/zstandard.h"

#include "base/error.h"

#ifdef KLOTSKI_HAVE_ZSTD
#include <zstd.h>

#include <new>
#include <vector>
#endif

namespace klotski {

#ifdef KLOTSKI_HAVE_ZSTD

namespace {

// Frames with a larger window take more memory than a row is worth; the tool's usual ones have 8
// MiB at most.
constexpr int kMostWindowBits = 27;

class ZstandardBytes final : public ByteSource {
 public:
  ZstandardBytes(std::unique_ptr<ByteSource> packed, const std::filesystem::path& path)
      : packed_(std::move(packed)), path_(path), piece_(ZSTD_DStreamInSize()) {
    if (!stream_) throw std::bad_alloc();
    ZSTD_DCtx_setParameter(stream_.get(), ZSTD_d_windowLogMax, kMostWindowBits);
  }

  size_t read(std::span<char> out) override {
    ZSTD_outBuffer unpacked{out.data(), out.size(), 0};
    while (unpacked.pos == 0) {
      if (input_.pos == input_.size) input_ = {piece_.data(), packed_->read(piece_), 0};
      if (input_.size == 0 && frame_ended_) return 0;
      const size_t before = input_.pos;
      const size_t hint = ZSTD_decompressStream(stream_.get(), &unpacked, &input_);
      frame_ended_ = hint == 0;
      const bool stuck = input_.pos == before && unpacked.pos == 0 && !frame_ended_;
      if (ZSTD_isError(hint) || stuck) {
        fail(ErrorKind::usage, "{}: is damaged or incomplete Zstandard{}", path_in_quotes(path_),
             ZSTD_isError(hint) ? fmt::format(": {}", ZSTD_getErrorName(hint)) : "");
      }
    }
    return unpacked.pos;
  }
  void rewind() override {
    packed_->rewind();
    input_ = {};
    frame_ended_ = true;
    ZSTD_DCtx_reset(stream_.get(), ZSTD_reset_session_only);
  }

 private:
  struct Free {
    void operator()(ZSTD_DCtx* stream) const { ZSTD_freeDCtx(stream); }
  };

  std::unique_ptr<ByteSource> packed_;
  std::filesystem::path path_;
  std::vector<char> piece_;
  std::unique_ptr<ZSTD_DCtx, Free> stream_{ZSTD_createDCtx()};
  ZSTD_inBuffer input_{};
  bool frame_ended_ = true;
};

}  // namespace

bool have_zstandard() { return true; }

std::unique_ptr<ByteSource> zstandard_bytes(std::unique_ptr<ByteSource> packed,
                                            const std::filesystem::path& path) {
  return std::make_unique<ZstandardBytes>(std::move(packed), path);
}

#else

bool have_zstandard() { return false; }

std::unique_ptr<ByteSource> zstandard_bytes(std::unique_ptr<ByteSource>,
                                            const std::filesystem::path& path) {
  fail(ErrorKind::usage,
       "{}: is Zstandard, and this program was built without it; unpack the file (zstd -d) or "
       "install libzstd-dev and build again",
       path_in_quotes(path));
}

#endif

}  // namespace klotski
