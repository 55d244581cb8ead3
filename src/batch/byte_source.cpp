#include "batch/byte_source.h"

#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "base/written_file.h"
#include "batch/zstandard.h"

namespace klotski {

namespace {

constexpr size_t kPackedPieceBytes = 128 * kKiB;

class PlainBytes final : public ByteSource {
 public:
  explicit PlainBytes(const File& file) : file_(file) {}

  size_t read(std::span<char> out) override {
    const size_t bytes = std::min<uint64_t>(out.size(), file_.size() - at_);
    file_.read_at(at_, std::as_writable_bytes(out.first(bytes)));
    at_ += bytes;
    return bytes;
  }
  void rewind() override { at_ = 0; }

 private:
  const File& file_;
  uint64_t at_ = 0;
};

// Gzip as its tools write it: one member or several, one after the other.
class GzipBytes final : public ByteSource {
 public:
  explicit GzipBytes(const File& file) : file_(file), packed_(file), piece_(kPackedPieceBytes) {
    constexpr int kGzipOnly = 16 + MAX_WBITS;
    if (inflateInit2(&stream_, kGzipOnly) != Z_OK) throw std::bad_alloc();
  }
  ~GzipBytes() override { inflateEnd(&stream_); }
  GzipBytes(const GzipBytes&) = delete;
  GzipBytes& operator=(const GzipBytes&) = delete;

  size_t read(std::span<char> out) override {
    stream_.next_out = reinterpret_cast<Bytef*>(out.data());
    stream_.avail_out = static_cast<uInt>(out.size());
    while (stream_.avail_out == out.size()) {
      if (stream_.avail_in == 0) refill();
      if (stream_.avail_in == 0 && ended_) return 0;
      if (ended_) inflateReset(&stream_);
      const int status = inflate(&stream_, Z_NO_FLUSH);
      ended_ = status == Z_STREAM_END;
      if (status != Z_OK && !ended_) {
        fail(ErrorKind::usage, "{}: is damaged or incomplete gzip", path_in_quotes(file_.path()));
      }
    }
    return out.size() - stream_.avail_out;
  }
  void rewind() override {
    packed_.rewind();
    stream_.avail_in = 0;
    ended_ = false;
    inflateReset(&stream_);
  }

 private:
  void refill() {
    stream_.next_in = reinterpret_cast<Bytef*>(piece_.data());
    stream_.avail_in = static_cast<uInt>(packed_.read(piece_));
  }

  const File& file_;
  PlainBytes packed_;
  std::vector<char> piece_;
  z_stream stream_{};
  bool ended_ = false;  // the last byte of a member was read
};

}  // namespace

std::unique_ptr<ByteSource> bytes_of(const File& file) {
  std::string first(std::min<uint64_t>(file.size(), 4), '\0');
  file.read_at(0, std::as_writable_bytes(std::span(first)));
  if (first.starts_with("\x1F\x8B")) return std::make_unique<GzipBytes>(file);
  auto plain = std::make_unique<PlainBytes>(file);
  if (first == "\x28\xB5\x2F\xFD") return zstandard_bytes(std::move(plain), file.path());
  return plain;
}

File open_input(const std::filesystem::path& path) {
  try {
    if (path != "-") return File(path);
    WrittenFile copy = WrittenFile::temporary();
    std::vector<char> piece(kPackedPieceBytes);
    for (uint64_t at = 0;;) {
      const ssize_t got = ::read(STDIN_FILENO, piece.data(), piece.size());
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) {
        fail(ErrorKind::usage, "standard input: cannot be read: {}", std::strerror(errno));
      }
      // The name of a descriptor opens the file even though its own name is gone.
      if (got == 0) return File(fmt::format("/proc/self/fd/{}", copy.descriptor()));
      copy.write_at(at, {piece.data(), static_cast<size_t>(got)});
      at += static_cast<uint64_t>(got);
    }
  } catch (const Error& error) {
    fail(ErrorKind::usage, "{}", error.what());
  }
}

}  // namespace klotski
