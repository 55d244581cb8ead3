#include "probe/link.h"

#include <algorithm>
#include <array>
#include <chrono>

#include "base/bytes.h"
#include "memory/arena.h"
#include "probe/median.h"

namespace klotski {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::array<uint64_t, 7> kSizes = {4 * kKiB, 64 * kKiB, 256 * kKiB, kMiB,
                                            4 * kMiB, 16 * kMiB, 128 * kMiB};

// The median of some copies.
double seconds_of_copy(CopyQueue& queue, std::span<std::byte> there,
                       std::span<const std::byte> here) {
  std::array<double, 7> seconds{};
  for (double& one : seconds) {
    const auto start = Clock::now();
    queue.to_device(there.data(), here.data(), here.size());
    queue.finish();
    one = std::max(std::chrono::duration<double>(Clock::now() - start).count(), 1e-9);
  }
  return median(seconds);
}

}  // namespace

Curve measure_link(Device& device, Tier& tier, std::span<std::byte> there) {
  const uint64_t most = std::min<uint64_t>({kSizes.back(), tier.limit_bytes() / 2, there.size()});
  const Arena memory(tier, "bytes to copy", most);
  const bool pinned = device.pin(memory.bytes());
  const std::unique_ptr<CopyQueue> queue = device.new_queue();
  std::vector<double> sizes;
  std::vector<double> seconds;
  for (const uint64_t size : kSizes) {
    if (size > most) break;
    sizes.push_back(static_cast<double>(size));
    seconds.push_back(seconds_of_copy(*queue, there, memory.bytes().first(size)));
  }
  if (pinned) device.unpin(memory.bytes());
  return {sizes, seconds};
}

}  // namespace klotski
