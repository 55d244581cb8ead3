// Reads a file once with DiskReader and prints GB/s (10^9 bytes per second), to compare with
// fio --rw=read --bs=1M --direct=1 --ioengine=io_uring --iodepth=8

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "memory/arena.h"
#include "memory/disk_reader.h"

namespace klotski {
namespace {

constexpr const char* kUsage =
    "use: klotski_disk_read FILE [EXTENT_BYTES=67108864] [EXTENTS_PER_READ=1] [DEPTH=8] "
    "[io_uring|threads]";

int64_t number(const char* text) {
  const std::string_view digits = text;
  int64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size() || value < 1) {
    fail(ErrorKind::usage, "expected a number above 0, found {}", in_quotes(digits));
  }
  return value;
}

void run(const std::vector<const char*>& arguments) {
  if (arguments.empty()) fail(ErrorKind::usage, "{}", kUsage);
  const auto given = [&](size_t i, int64_t otherwise) {
    return i < arguments.size() ? number(arguments[i]) : otherwise;
  };
  const DirectFile file(std::make_shared<const File>(arguments[0]));
  const uint64_t extent_bytes = round_up_to_alignment(static_cast<uint64_t>(given(1, 64 << 20)));
  const int64_t per_read = given(2, 1);
  DiskReaderOptions options;
  options.queue_depth = static_cast<int>(given(3, options.queue_depth));
  if (arguments.size() > 4) {
    const std::string_view method = arguments[4];
    options.method = method == "threads" ? ReadMethod::threads : ReadMethod::io_uring;
  }
  DiskReader reader(options);
  Tier tier("memory", UINT64_MAX);
  const BufferPool pool(tier, "extents", per_read, extent_bytes);
  for (int64_t i = 0; i < per_read; ++i) {
    std::fill(pool.buffer(i).begin(), pool.buffer(i).end(), std::byte{1});  // take the pages now
  }
  std::vector<ReadExtent> extents;
  const auto start = std::chrono::steady_clock::now();
  for (uint64_t offset = 0; offset < file.size();) {
    extents.clear();
    for (int64_t i = 0; i < per_read; ++i, offset += extent_bytes) {
      extents.push_back({&file, offset, extent_bytes, pool.buffer(i).data()});
    }
    reader.read(extents);
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  fmt::print(
      "{} bytes in {:.3f} s: {:.3f} GB/s, {}, {}, {} requests, {} retried\n", reader.counts().bytes,
      took.count(), static_cast<double>(reader.counts().bytes) / took.count() / 1e9,
      reader.method() == ReadMethod::io_uring ? "io_uring" : "threads",
      file.direct() ? "direct" : "buffered", reader.counts().requests, reader.counts().retried);
}

}  // namespace
}  // namespace klotski

int main(int count, char** arguments) {
  try {
    klotski::run({arguments + 1, arguments + count});
    return EXIT_SUCCESS;
  } catch (const klotski::Error& error) {
    fmt::print(stderr, "{}\n", klotski::one_line(error.what()));
    return klotski::exit_code(error.kind());
  }
}
