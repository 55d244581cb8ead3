#include "probe/machine.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <exception>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "kernels/cpu/cpu_ops.h"
#include "memory/arena.h"
#include "memory/direct_file.h"
#include "memory/disk_reader.h"
#include "probe/random_weights.h"

namespace klotski {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::array<uint64_t, 4> kBlocks{256 * kKiB, kMiB, 4 * kMiB, 16 * kMiB};
constexpr std::array<int, 4> kDepths{1, 4, 8, 32};

double seconds_since(Clock::time_point start) {
  return std::max(std::chrono::duration<double>(Clock::now() - start).count(), 1e-9);
}

uint64_t sum_of(std::span<const uint64_t> words) {
  constexpr size_t kSums = 16;  // side by side, so that no addition waits for another
  std::array<uint64_t, kSums> sums{};
  for (size_t i = 0; i + kSums <= words.size(); i += kSums) {
    for (size_t k = 0; k < kSums; ++k) sums[k] += words[i + k];
  }
  uint64_t sum = 0;
  for (const uint64_t part : sums) sum += part;
  return sum;
}

// The median of some passes: memory has no fixed speed that a pass could only fall short of.
double memory_rate(Tier& tier, uint64_t bytes) {
  constexpr size_t kPiece = kMiB / sizeof(uint64_t);
  const uint64_t pieces = std::max<uint64_t>(std::min(bytes, tier.limit_bytes() / 2) / kMiB, 1);
  const Arena memory(tier, "memory to read", pieces * kMiB);
  fill_random(memory.bytes(), DType::F32);
  const auto* words = reinterpret_cast<const uint64_t*>(memory.bytes().data());
  std::atomic<uint64_t> sink{0};  // so that nothing is left out
  std::array<double, 5> rates{};
  for (double& rate : rates) {
    const auto start = Clock::now();
    cpu::machine().pool.parallel_for(static_cast<int64_t>(pieces), [&](int64_t begin, int64_t end) {
      const auto first = static_cast<size_t>(begin) * kPiece;
      sink += sum_of({words + first, static_cast<size_t>(end - begin) * kPiece});
    });
    rate = static_cast<double>(pieces * kMiB) / seconds_since(start);
  }
  std::sort(rates.begin(), rates.end());
  return rates[rates.size() / 2];
}

// Places of a file, far apart. There are more of them than memory to read them into, so that a
// cache below the machine answers as it does where a whole model is read again and again; `window`
// of them have memory of their own.
struct Region {
  Arena memory;
  std::vector<ReadExtent> extents;
  size_t window = 1;
  size_t next_at = 0;

  // The next places, round and round: as many as asked for, or fewer at the end.
  std::span<const ReadExtent> next(size_t places) {
    const size_t at = next_at < extents.size() ? next_at : 0;
    const size_t count = std::min(places, extents.size() - at);
    next_at = at + count;
    return std::span(extents).subspan(at, count);
  }
  uint64_t window_bytes() const { return std::min(window, extents.size()) * extents[0].bytes; }
};

Region spread_over(const DirectFile& file, Tier& tier, uint64_t most_bytes) {
  constexpr uint64_t kWindows = 8;
  const uint64_t most = std::max(std::min(most_bytes, tier.limit_bytes() / 2), kDirectAlignment);
  const uint64_t piece =
      std::min({kBlocks.back(), round_up_to_alignment(file.size()), round_down_to_alignment(most)});
  const auto pieces_in = [&](uint64_t bytes) { return std::max<uint64_t>(bytes / piece, 1); };
  const uint64_t window = pieces_in(std::min(most, file.size()));
  const uint64_t count = std::min(kWindows * window, pieces_in(file.size()));
  Region region{.memory = Arena(tier, "bytes from disk", window * piece),
                .extents = {},
                .window = static_cast<size_t>(window)};
  for (uint64_t i = 0; i < count; ++i) {
    region.extents.push_back({.file = &file,
                              .offset = round_down_to_alignment(file.size() / count * i),
                              .bytes = piece,
                              .destination = region.memory.bytes().data() + i % window * piece});
  }
  return region;
}

// Reads the region once, as much of it as time allows; the rest does not count any more.
void read_first(Region& region, double most_seconds) {
  DiskReader reader{DiskReaderOptions{}};
  const auto start = Clock::now();
  size_t done = 0;
  while (done < region.extents.size() && (done == 0 || seconds_since(start) < most_seconds)) {
    reader.read(std::span(region.extents).subspan(done++, 1));
  }
  region.extents.resize(done);
}

// Always of the same places: some of a file may be faster than others.
double disk_rate(const Region& region, uint64_t block_bytes, int queue_depth) {
  DiskReader reader({.queue_depth = queue_depth, .block_bytes = block_bytes});
  const auto start = Clock::now();
  reader.read(std::span(region.extents).first(std::min(region.window, region.extents.size())));
  return static_cast<double>(reader.counts().bytes) / seconds_since(start);
}

// A product like those of a run: its weights come from memory, and it takes all threads.
class Computing {
 public:
  explicit Computing(Tier& tier)
      : width_(tier.limit_bytes() >= 256 * kMiB ? 4096 : 512),
        weights_(tier, "weights to multiply by",
                 kCopies * static_cast<uint64_t>(width_ * width_) * sizeof(uint16_t)),
        in_(static_cast<size_t>(kRows * width_), 0.5f),
        out_(in_.size()) {
    fill_random(weights_.bytes(), DType::BF16);
  }

  // Seconds of a product, of as many as take about so long.
  double seconds(double about) {
    const auto start = Clock::now();
    int64_t products = 0;
    do {
      const auto copy = static_cast<size_t>(products++ % kCopies);
      const TensorView weights{
          .data = weights_.bytes().data() + copy * (weights_.bytes().size() / kCopies),
          .dtype = DType::BF16,
          .shape = {width_, width_}};
      cpu_ops().matmul({out_.data(), kRows, width_}, {in_.data(), kRows, width_}, weights, {},
                       Precision::bf16);
    } while (seconds_since(start) < about);
    return seconds_since(start) / static_cast<double>(products);
  }

 private:
  static constexpr int64_t kRows = 8;
  static constexpr size_t kCopies = 4;
  int64_t width_;
  Arena weights_;
  std::vector<float> in_;
  std::vector<float> out_;
};

// A thread that reads the region again and again, as the engine reads, so many places at a time.
class Reading {
 public:
  Reading(Region& region, size_t places)
      : thread_([this, &region, places] {
          try {
            read(region, places);
          } catch (...) {
            error_ = std::current_exception();
          }
        }) {}
  ~Reading() { join(); }

  void end() {
    join();
    if (error_) std::rethrow_exception(error_);
  }
  // After the end.
  double seconds_a_call() const { return seconds_ / static_cast<double>(calls_); }
  double bytes_per_second() const { return static_cast<double>(reader_.counts().bytes) / seconds_; }

 private:
  void read(Region& region, size_t places) {
    const auto start = Clock::now();
    do {
      reader_.read(region.next(places));
      ++calls_;
    } while (!stop_);
    seconds_ = seconds_since(start);
  }
  void join() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }

  DiskReader reader_{DiskReaderOptions{}};
  std::atomic<bool> stop_{false};
  int64_t calls_ = 0;
  double seconds_ = 0;
  std::exception_ptr error_;
  std::thread thread_;  // last: it uses all of the above
};

void measure_together(Region& region, Tier& tier, MachineProfile& profile) {
  constexpr double kAbout = 0.15;
  Computing computing(tier);
  computing.seconds(kAbout);
  constexpr int kRounds = 4;
  constexpr double kNever = 1e9;
  double alone = kNever;  // of each the best: what else the machine does makes it only worse
  double together = kNever;
  double seconds_a_place = kNever;
  double& rate = profile.disk_bytes_per_second_while_computing;
  for (int round = 0; round < kRounds; ++round) {
    alone = std::min(alone, computing.seconds(kAbout));
    Reading all(region, region.window);
    together = std::min(together, computing.seconds(kAbout));
    all.end();
    rate = std::max(rate, all.bytes_per_second());
    Reading one_by_one(region, 1);
    computing.seconds(kAbout);
    one_by_one.end();
    seconds_a_place = std::min(seconds_a_place, one_by_one.seconds_a_call());
  }
  profile.computing_takes_while_reading = std::max(1.0, together / alone);
  profile.load_seconds_while_computing =
      std::max(0.0, seconds_a_place - static_cast<double>(region.extents[0].bytes) / rate);
}

void measure_disk(const std::filesystem::path& path, Tier& tier, const ProbeLimits& limits,
                  MachineProfile& profile) {
  const DirectFile file(std::make_shared<const File>(path));
  std::vector<DiskRate>& rates = profile.disk;
  if (file.size() == 0) return;
  Region region = spread_over(file, tier, limits.disk_bytes);
  read_first(region, limits.disk_seconds);
  for (const uint64_t block : kBlocks) {
    for (const int depth : kDepths) {
      // With less to read the queue is never full.
      const bool full = block * static_cast<uint64_t>(depth) <= region.window_bytes();
      if (!full && !rates.empty()) continue;
      rates.push_back({block, depth, disk_rate(region, block, depth)});
    }
  }
  const DiskReaderOptions as_the_engine;
  constexpr int kRounds = 3;
  for (int round = 0; round < kRounds; ++round) {
    uint64_t bytes = 0;
    const auto start = Clock::now();
    for (size_t done = 0; done < region.extents.size();) {
      const std::span<const ReadExtent> window = region.next(region.window);
      DiskReader(as_the_engine).read(window);
      done += window.size();
      bytes += window.size() * window[0].bytes;
    }
    profile.disk_bytes_per_second =
        std::max(profile.disk_bytes_per_second, static_cast<double>(bytes) / seconds_since(start));
  }
  measure_together(region, tier, profile);
}

}  // namespace

MachineProfile measure_machine(const std::filesystem::path& file_on_disk, Tier& tier,
                               const ProbeLimits& limits) {
  MachineProfile profile;
  profile.kernels = cpu_kernels().chosen;
  profile.threads = cpu::machine().pool.threads();
  profile.memory_bytes_per_second = memory_rate(tier, limits.disk_bytes);
  measure_disk(file_on_disk, tier, limits, profile);
  return profile;
}

}  // namespace klotski
