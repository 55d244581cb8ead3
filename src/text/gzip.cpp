#include "text/gzip.h"

#include <zlib.h>

#include <new>
#include <system_error>

#include "base/bytes.h"
#include "base/error.h"
#include "base/file.h"
#include "base/folder.h"
#include "base/memory_limit.h"

namespace klotski {

namespace {

class Inflater {
 public:
  Inflater() {
    constexpr int kGzipOnly = 16 + MAX_WBITS;
    if (inflateInit2(&stream_, kGzipOnly) != Z_OK) throw std::bad_alloc();
  }
  ~Inflater() { inflateEnd(&stream_); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  z_stream& stream() { return stream_; }

 private:
  z_stream stream_ = {};
};

}  // namespace

std::string gunzip(std::string_view packed, uint64_t max_bytes, std::string_view what) {
  constexpr size_t kChunkBytes = 256 * kKiB;
  constexpr size_t kMaxPackedBytes = 1u << 30;  // zlib counts input in 32 bits
  if (packed.size() > kMaxPackedBytes) {
    fail(ErrorKind::bad_model, "{}: expected at most {} of gzip, found {}", what,
         format_bytes(kMaxPackedBytes), format_bytes(packed.size()));
  }
  Inflater inflater;
  z_stream& stream = inflater.stream();
  // zlib reads the input only, its interface just does not say so.
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
  stream.avail_in = static_cast<uInt>(packed.size());
  std::string text;
  int status = Z_OK;
  while (status != Z_STREAM_END || stream.avail_in > 0) {
    if (status == Z_STREAM_END) inflateReset(&stream);  // the next member follows
    const size_t done = text.size();
    // The text lies in two places while it grows to twice its size.
    if (done > kMiB && done + kChunkBytes > text.capacity()) {
      require_memory(2 * done, allowed_memory_left(), what);
    }
    text.resize(done + kChunkBytes);
    stream.next_out = reinterpret_cast<Bytef*>(text.data() + done);
    stream.avail_out = kChunkBytes;
    status = inflate(&stream, Z_NO_FLUSH);
    text.resize(text.size() - stream.avail_out);
    if (status != Z_OK && status != Z_STREAM_END) {
      fail(ErrorKind::bad_model, "{}: damaged or unfinished gzip after {} unpacked bytes", what,
           text.size());
    }
    if (text.size() > max_bytes) {
      fail(ErrorKind::bad_model, "{}: expected at most {} unpacked, found more", what,
           format_bytes(max_bytes));
    }
  }
  return text;
}

namespace {

std::string unpacked(std::string text, const std::filesystem::path& path, uint64_t max_bytes) {
  if (path.extension() != ".gz") return text;
  return gunzip(text, max_bytes, path_in_quotes(path));
}

}  // namespace

std::string read_text_or_gzip(const std::filesystem::path& path, uint64_t max_bytes) {
  return unpacked(read_text_file(path, max_bytes), path, max_bytes);
}

std::string read_in_folder_or_gzip(const std::filesystem::path& folder, std::string_view name,
                                   uint64_t max_bytes) {
  return unpacked(read_in_folder(folder, name, max_bytes), folder / name, max_bytes);
}

std::optional<std::string> find_name(const std::filesystem::path& folder, std::string_view name) {
  for (std::string candidate : {std::string(name), std::string(name) + ".gz"}) {
    if (has_entry(folder, candidate)) return candidate;
  }
  return std::nullopt;
}

}  // namespace klotski
