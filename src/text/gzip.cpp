#include "text/gzip.h"

#include <zlib.h>

#include <new>
#include <system_error>

#include "base/bytes.h"
#include "base/error.h"
#include "base/file.h"
#include "base/folder.h"

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

std::string read_text_or_gzip(const std::filesystem::path& path, uint64_t max_bytes) {
  std::string text = read_text_file(path, max_bytes);
  if (path.extension() != ".gz") return text;
  return gunzip(text, max_bytes, path_in_quotes(path));
}

std::optional<std::filesystem::path> find_file(const std::filesystem::path& folder,
                                               std::string_view name) {
  for (const std::string& candidate : {std::string(name), std::string(name) + ".gz"}) {
    if (!has_entry(folder, candidate)) continue;
    file_in_folder(folder, candidate);  // refuses a link out of the folder
    return folder / candidate;
  }
  return std::nullopt;
}

}  // namespace klotski
