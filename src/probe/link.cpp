#include "probe/link.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "base/bytes.h"
#include "probe/median.h"
#include "probe/random_weights.h"
#include "probe/repeating.h"

namespace klotski {

namespace {

constexpr std::array<uint64_t, 8> kSizes = {4 * kKiB, 64 * kKiB, 256 * kKiB, kMiB,
                                            4 * kMiB, 16 * kMiB, 128 * kMiB, 256 * kMiB};
constexpr uint64_t kMostRowBytes = 16 * kMiB;
constexpr int kInARow = 4;
constexpr uint64_t kRowBytes = kMiB;   // some rows that something waits for
constexpr double kAboutOfRows = 0.01;  // seconds, of each way in each round

// One direction of the link, with its queue and the memory at both ends.
struct Way {
  CopyQueue& queue;
  std::byte* there;
  std::byte* here;
  bool to_device;
  int in_a_row;  // copies of which the next ones are begun before one ends

  // Seconds of one copy: the median over several rows of copies.
  double seconds(uint64_t bytes) const {
    std::array<double, 7> seconds{};
    for (double& one : seconds) {
      const auto start = std::chrono::steady_clock::now();
      for (int i = 0; i < in_a_row; ++i) {
        if (to_device) {
          queue.to_device(there, here, bytes);
        } else {
          queue.to_host(here, there, bytes);
        }
      }
      queue.finish();
      one = seconds_since(start) / in_a_row;
    }
    return median(seconds);
  }

  Curve curve(uint64_t most) const {
    std::vector<double> sizes;
    std::vector<double> times;
    for (const uint64_t size : kSizes) {
      if (size > most) break;
      sizes.push_back(static_cast<double>(size));
      times.push_back(seconds(size));
    }
    return {sizes, times};
  }
};

// Time of copying rows during copies of weights in the same direction, as a multiple of the time
// alone. The last kRowBytes of `here` and `there` are the rows.
double times_beside_copies(CopyQueue& large, CopyQueue& small, std::span<std::byte> here,
                           std::span<std::byte> there) {
  const size_t others = std::min(here.size(), there.size()) - kRowBytes;
  const std::function<void()> rows = [&] {
    small.to_device(there.data() + others, here.data() + others, kRowBytes);
    small.finish();
  };
  const std::function<void()> copies = [&] {
    for (int i = 0; i < kInARow; ++i) large.to_device(there.data(), here.data(), others);
    large.finish();
  };
  rows();  // the first ones do not count
  copies();
  std::array<double, 5> times{};
  for (double& one : times) {
    const double alone = seconds_each(rows, kAboutOfRows);
    Repeating copying(copies);
    one = seconds_each(rows, kAboutOfRows) / alone;
    copying.end();
  }
  return std::max(1.0, median(times));
}

}  // namespace

PinnedArena::PinnedArena(const Processor& cpu, Device& device, Tier& tier, uint64_t bytes)
    : device_(device), arena_(tier, "bytes to copy", bytes) {
  fill_random(cpu, arena_.bytes().first(bytes / 8 * 8), DType::F32);
  pinned_ = device.pin(arena_.bytes());
}

PinnedArena::~PinnedArena() {
  if (pinned_) device_.unpin(arena_.bytes());
}

LinkProfile measure_link(const Processor& cpu, Device& device, Tier& tier,
                         std::span<std::byte> there) {
  const uint64_t most = std::min<uint64_t>({kSizes.back(), tier.limit_bytes() / 2, there.size()});
  const PinnedArena memory(cpu, device, tier, most);
  std::byte* const here = memory.bytes().data();
  const uint64_t most_of_rows = std::min(most, kMostRowBytes);
  const std::unique_ptr<CopyQueue> large = device.new_queue(CopySize::large);
  const std::unique_ptr<CopyQueue> small = device.new_queue(CopySize::small);
  LinkProfile link;
  link.weights = Way{*large, there.data(), here, true, kInARow}.curve(most);
  link.rows_up = Way{*small, there.data(), here, true, 1}.curve(most_of_rows);
  link.rows_down = Way{*small, there.data(), here, false, 1}.curve(most_of_rows);
  if (most >= 2 * kRowBytes) {
    link.rows_take_while_copying =
        times_beside_copies(*large, *small, memory.bytes(), there.first(most));
  }
  return link;
}

}  // namespace klotski
