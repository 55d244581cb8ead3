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

constexpr std::array<uint64_t, 7> kSizes = {4 * kKiB, 64 * kKiB, 256 * kKiB, kMiB,
                                            4 * kMiB, 16 * kMiB, 128 * kMiB};

using Copy = std::function<void(uint64_t bytes)>;

// The median of some copies.
double seconds_of_copy(CopyQueue& queue, const Copy& copy, uint64_t bytes) {
  std::array<double, 7> seconds{};
  for (double& one : seconds) {
    const auto start = std::chrono::steady_clock::now();
    copy(bytes);
    queue.finish();
    one = seconds_since(start);
  }
  return median(seconds);
}

Curve curve_of_copies(CopyQueue& queue, const Copy& copy, uint64_t most) {
  std::vector<double> sizes;
  std::vector<double> seconds;
  for (const uint64_t size : kSizes) {
    if (size > most) break;
    sizes.push_back(static_cast<double>(size));
    seconds.push_back(seconds_of_copy(queue, copy, size));
  }
  return {sizes, seconds};
}

}  // namespace

PinnedArena::PinnedArena(Device& device, Tier& tier, uint64_t bytes)
    : device_(device), arena_(tier, "bytes to copy", bytes) {
  fill_random(arena_.bytes().first(bytes / 8 * 8), DType::F32);
  pinned_ = device.pin(arena_.bytes());
}

PinnedArena::~PinnedArena() {
  if (pinned_) device_.unpin(arena_.bytes());
}

void measure_link(Device& device, Tier& tier, std::span<std::byte> there, MachineProfile& machine) {
  const uint64_t most = std::min<uint64_t>({kSizes.back(), tier.limit_bytes() / 2, there.size()});
  const PinnedArena memory(device, tier, most);
  const std::unique_ptr<CopyQueue> queue = device.new_queue();
  std::byte* const here = memory.bytes().data();
  machine.link = curve_of_copies(
      *queue, [&](uint64_t bytes) { queue->to_device(there.data(), here, bytes); }, most);
  machine.link_back = curve_of_copies(
      *queue, [&](uint64_t bytes) { queue->to_host(here, there.data(), bytes); }, most);
}

}  // namespace klotski
