#include "probe/beside_device.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "probe/link.h"
#include "probe/median.h"
#include "probe/repeating.h"

namespace klotski {

namespace {

// More rows, or a longer call, are the device's: its time hardly grows with the rows.
constexpr int64_t kMostRows = 1024;
constexpr double kLongestCall = 0.25;

constexpr int64_t kFewRows = 8;  // rows of an expert that is worth computing on the CPU
// Bytes of one copy, as large as a large expert: between smaller copies the thread that asks for
// them takes time as well, which hides how much slower the link is while the CPU computes.
constexpr uint64_t kMostCopyBytes = 128 * kMiB;
constexpr double kAboutOfExperts = 0.05;  // seconds, of each way in each round

// Memory copied to the device, more than caches hold before any of it is copied again.
class Copies {
 public:
  Copies(const PartsBench& cpu, Device& device, std::span<std::byte> there)
      : memory_(cpu.ops, device, cpu.tier,
                std::min(std::max(cpu.limits.weight_bytes, kMostCopyBytes),
                         cpu.tier.limit_bytes() / 4)),
        queues_{device.new_queue(CopySize::large), device.new_queue(CopySize::large)},
        there_(there.first(std::min(
            {there.size(), memory_.bytes().size(), static_cast<size_t>(kMostCopyBytes)}))) {}

  // Begins a copy and waits for the one before it: the link never waits for the thread.
  void next() {
    if (at_ + there_.size() > memory_.bytes().size()) at_ = 0;
    queues_[0]->to_device(there_.data(), memory_.bytes().data() + at_, there_.size());
    at_ += there_.size();
    std::swap(queues_[0], queues_[1]);
    queues_[0]->finish();
  }
  void finish() {
    for (const auto& queue : queues_) queue->finish();
  }

 private:
  PinnedArena memory_;
  std::array<std::unique_ptr<CopyQueue>, 2> queues_;  // the next copy's queue first
  std::span<std::byte> there_;
  size_t at_ = 0;
};

LayerId first_of_kind(const ModelProfile& profile, size_t kind) {
  const std::vector<int>& kinds = profile.kind_of_layer;
  return LayerId(std::find(kinds.begin(), kinds.end(), static_cast<int>(kind)) - kinds.begin());
}

void measure_together(const PartsBench& cpu, const ModelDescription& model, LayerId layer,
                      Copies& copies, MachineProfile& machine) {
  ExpertPart expert(cpu, model, layer);
  const uint64_t left = cpu.tier.limit_bytes() - cpu.tier.used_bytes();
  const Reservation held = cpu.tier.reserve("rows", std::min(expert.bytes(kFewRows), left));
  const std::function<void()> compute = expert.call(kFewRows);
  const std::function<void()> copy = [&] { copies.next(); };
  compute();  // the first calls do not count
  copy();
  std::array<double, 5> computing{};
  std::array<double, 5> copying{};
  for (size_t round = 0; round < computing.size(); ++round) {
    const double computing_alone = seconds_each(compute, kAboutOfExperts);
    copy();  // one copy is under way from now on, and each call waits for one
    const double copying_alone = seconds_each(copy, kAboutOfExperts);
    Repeating beside(copy);
    computing[round] = seconds_each(compute, kAboutOfExperts) / computing_alone;
    beside.end();
    copies.finish();
    copying[round] = beside.seconds() / static_cast<double>(beside.calls()) / copying_alone;
  }
  machine.cpu().takes_while_copying = std::max(1.0, median(computing));
  for (LinkProfile& link : machine.links) {
    link.takes_while_computing = std::max(1.0, median(copying));
  }
}

}  // namespace

void measure_beside_device(const PartsBench& bench, const ModelDescription& model, Device& device,
                           std::span<std::byte> there, Profile& profile) {
  ProbeLimits limits = beyond_caches(bench.limits);
  limits.most_rows = std::min(limits.most_rows, kMostRows);
  limits.longest_call_seconds = std::min(limits.longest_call_seconds, kLongestCall);
  const PartsBench cpu{bench.tier, limits, bench.ops, bench.precision, bench.types};
  bool together = false;
  for (size_t kind = 0; kind < profile.model.kinds.size(); ++kind) {
    const LayerId layer = first_of_kind(profile.model, kind);
    LayerProfile& times = profile.model.kinds[kind];
    times.attend_decode_on_cpu = time_attend_decode(cpu, model, layer);
    if (!model.layer(layer).feed_forward.routed) continue;
    times.expert_on_cpu = ExpertPart(cpu, model, layer).time();
    if (together) continue;
    Copies copies(cpu, device, there);
    measure_together(cpu, model, layer, copies, profile.machine);
    together = true;
  }
}

}  // namespace klotski
