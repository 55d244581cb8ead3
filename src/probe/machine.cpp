#include "probe/machine.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "memory/arena.h"
#include "memory/direct_file.h"
#include "memory/disk_reader.h"
#include "probe/agreed.h"
#include "probe/median.h"
#include "probe/random_weights.h"
#include "probe/repeating.h"

namespace klotski {

namespace {

constexpr std::array<uint64_t, 4> kBlocks{256 * kKiB, kMiB, 4 * kMiB, 16 * kMiB};
constexpr std::array<int, 4> kDepths{1, 4, 8, 32};
constexpr uint64_t kNewMemory = kGiB;
constexpr std::chrono::milliseconds kPause(20);

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

// Passes have pauses between them, so that not all fall into one busy moment.
double memory_rate(const Processor& cpu, Tier& tier, uint64_t bytes) {
  constexpr size_t kPiece = kMiB / sizeof(uint64_t);
  const uint64_t pieces = std::max<uint64_t>(std::min(bytes, tier.limit_bytes() / 2) / kMiB, 1);
  const Arena memory(tier, "memory to read", pieces * kMiB);
  fill_random(cpu, memory.bytes(), DType::F32);
  const auto* words = reinterpret_cast<const uint64_t*>(memory.bytes().data());
  std::atomic<uint64_t> sink{0};  // keeps the reads from being optimised away
  return fastest_agreed([&] {
    std::this_thread::sleep_for(kPause);
    const auto start = Clock::now();
    cpu.parallel_for(static_cast<int64_t>(pieces), [&](int64_t begin, int64_t end) {
      const auto first = static_cast<size_t>(begin) * kPiece;
      sink += sum_of({words + first, static_cast<size_t>(end - begin) * kPiece});
    });
    return static_cast<double>(pieces * kMiB) / seconds_since(start);
  });
}

// Places of a file, far apart. There are more of them than memory to read them into, so that a
// disk's own cache answers as it does where a whole model is read again and again; `window` of them
// have memory of their own.
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

Region spread_over(const DirectFile& file, uint64_t piece_bytes, Tier& tier, uint64_t most_bytes) {
  constexpr uint64_t kWindows = 8;
  const uint64_t most = std::max(std::min(most_bytes, tier.limit_bytes() / 2), kDirectAlignment);
  const uint64_t piece =
      std::min({round_up_to_alignment(piece_bytes), round_up_to_alignment(file.size()),
                round_down_to_alignment(most)});
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

// Bytes a second, always measured on the same places: some of a file may be faster than others.
double disk_rate(const Region& region, uint64_t block_bytes, int queue_depth) {
  DiskReader reader({.queue_depth = queue_depth, .block_bytes = block_bytes});
  const auto start = Clock::now();
  reader.read(std::span(region.extents).first(std::min(region.window, region.extents.size())));
  return static_cast<double>(reader.counts().bytes) / seconds_since(start);
}

// A product as large as an expert: its weights come from memory, and it takes all threads, as an
// expert does.
class Computing {
 public:
  Computing(const Processor& cpu, Tier& tier, uint64_t unit_bytes)
      : cpu_(cpu),
        width_(width_for(tier, unit_bytes)),
        copies_(std::clamp(std::min(kBeyondCaches, tier.limit_bytes() / 4) / product_bytes(),
                           kLeastCopies, kMostCopies)),
        weights_(tier, "weights to multiply by", copies_ * product_bytes()),
        in_(static_cast<size_t>(kRows * width_), 0.5f),
        out_(in_.size()) {
    fill_random(cpu, weights_.bytes(), DType::BF16);
  }

  // Seconds of one product, measured over as many as take about `about` seconds.
  double seconds(double about) {
    return seconds_each([this] { multiply(); }, about);
  }

 private:
  void multiply() {
    const uint64_t copy = next_copy_++ % copies_;
    const TensorView weights{.data = weights_.bytes().data() + copy * product_bytes(),
                             .dtype = DType::BF16,
                             .shape = {width_, width_}};
    cpu_.matmul({out_.data(), kRows, width_}, {in_.data(), kRows, width_}, weights, {},
                Precision::bf16);
  }

  static constexpr int64_t kRows = 8;
  static constexpr uint64_t kLeastCopies = 4;
  static constexpr uint64_t kMostCopies = 256;
  static constexpr uint64_t kBeyondCaches = 128 * kMiB;

  static int64_t width_for(const Tier& tier, uint64_t unit_bytes) {
    const uint64_t bytes = std::min(unit_bytes, tier.limit_bytes() / 4 / kLeastCopies);
    const double width = std::sqrt(static_cast<double>(bytes) / sizeof(uint16_t));
    return std::clamp<int64_t>(static_cast<int64_t>(width) / 64 * 64, 64, 4096);
  }
  uint64_t product_bytes() const {
    return static_cast<uint64_t>(width_ * width_) * sizeof(uint16_t);
  }

  const Processor& cpu_;
  int64_t width_;
  uint64_t copies_;
  uint64_t next_copy_ = 0;
  Arena weights_;
  std::vector<float> in_;
  std::vector<float> out_;
};

// Reads as a run does: a unit at a time, over much of the file.
class UnitsBench {
 public:
  UnitsBench(const Processor& cpu, const DirectFile& file, uint64_t unit_bytes, Tier& tier,
             const ProbeLimits& limits)
      : tier_(tier),
        region_(spread_over(file, unit_bytes, tier, limits.disk_bytes)),
        computing_(cpu, tier, unit_bytes) {
    read_first(region_, limits.disk_seconds);
    computing_.seconds(kAbout);
  }

  void alone(MachineProfile& profile) {
    const auto read_all = [&] {
      DiskReader reader{DiskReaderOptions{}};
      const auto start = Clock::now();
      for (size_t i = 0; i < region_.extents.size(); ++i) reader.read(region_.next(1));
      return static_cast<double>(reader.counts().bytes) / seconds_since(start);
    };
    profile.disk().bytes_per_second = fastest_agreed(read_all, 3, 5);
  }

  void while_computing(MachineProfile& profile) {
    std::array<double, 5> slower{};
    std::array<double, 5> rates{};
    for (size_t round = 0; round < rates.size(); ++round) {
      const double alone = computing_.seconds(kAbout);
      const Together found = together(kAbout);
      slower[round] = found.seconds / alone;
      rates[round] = found.bytes_per_second;
    }
    profile.cpu().takes_while_reading = std::max(1.0, median(slower));
    profile.disk().bytes_per_second_while_computing = median(rates);
  }

  // Measures reads into new memory; called last, since the region's memory is another one
  // afterwards.
  void into_new_memory(MachineProfile& profile) {
    const uint64_t piece = region_.extents[0].bytes;
    const size_t places = std::min(tier_.limit_bytes() - tier_.used_bytes(), kNewMemory) / piece;
    if (places == 0) return;
    region_.memory = Arena(tier_, "memory not used before", places * piece);
    for (size_t i = 0; i < region_.extents.size(); ++i) {
      region_.extents[i].destination = region_.memory.bytes().data() + i % places * piece;
    }
    region_.next_at = 0;
    const double alone = computing_.seconds(kAbout);
    const Together found = together(2 * kAbout);
    profile.cpu().takes_while_finding_memory = std::max(1.0, found.seconds / alone);
    profile.disk().bytes_per_second_into_new_memory = found.bytes_per_second;
  }

 private:
  static constexpr double kAbout = 0.12;
  struct Together {
    double seconds;  // seconds of a product
    double bytes_per_second;
  };
  // Reads the region again and again, one place after the other, as the engine does.
  Together together(double about) {
    DiskReader reader{DiskReaderOptions{}};
    Repeating reading([&] { reader.read(region_.next(1)); });
    const double seconds = computing_.seconds(about);
    reading.end();
    return {seconds, static_cast<double>(reader.counts().bytes) / reading.seconds()};
  }

  Tier& tier_;
  Region region_;
  Computing computing_;
};

void measure_blocks(const DirectFile& file, Tier& tier, const ProbeLimits& limits,
                    std::vector<DiskRate>& rates) {
  Region region = spread_over(file, kBlocks.back(), tier, limits.disk_bytes);
  read_first(region, limits.disk_seconds);
  for (const uint64_t block : kBlocks) {
    for (const int depth : kDepths) {
      // The queue is never full where there is less to read.
      const bool full = block * static_cast<uint64_t>(depth) <= region.window_bytes();
      if (!full && !rates.empty()) continue;
      rates.push_back({block, depth, disk_rate(region, block, depth)});
    }
  }
}

}  // namespace

MachineProfile measure_machine(const Processor& cpu,
                               const std::optional<std::filesystem::path>& file_on_disk,
                               uint64_t unit_bytes, Tier& tier, const ProbeLimits& limits) {
  MachineProfile profile;
  profile.cpu().name = cpu.name();
  profile.cpu().threads = cpu.threads();
  profile.cpu().memory_bytes_per_second = memory_rate(cpu, tier, limits.disk_bytes);
  if (!file_on_disk) return profile;
  const DirectFile file(std::make_shared<const File>(*file_on_disk));
  if (file.size() == 0) return profile;
  measure_blocks(file, tier, limits, profile.disk().rates);
  UnitsBench units(cpu, file, unit_bytes, tier, limits);
  units.alone(profile);
  units.while_computing(profile);
  units.into_new_memory(profile);
  return profile;
}

}  // namespace klotski
