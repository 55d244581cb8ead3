#pragma once

// What a machine does in which time, as it was measured: pure data, for whoever predicts how long
// work will take.

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace klotski {

// Seconds of a piece of work by its size, known at the sizes that were measured.
class Curve {
 public:
  Curve() = default;  // nothing measured: takes no time
  // Refuses (internal) other than as many sizes as seconds, at least one, all positive and finite,
  // sizes ascending.
  Curve(std::vector<double> sizes, std::vector<double> seconds);

  // Between points along a straight line. What is smaller than the first takes as long as the
  // first: it is mostly the weights that are read. Beyond the last along the line through the last
  // two, but never less than the last; where only one was measured, in proportion to its size.
  double at(double size) const;

  // The same work on a machine so many times as fast.
  Curve faster(double factor) const;

  bool empty() const { return sizes_.empty(); }
  std::span<const double> sizes() const { return sizes_; }
  std::span<const double> seconds() const { return seconds_; }
  bool operator==(const Curve&) const = default;

 private:
  std::vector<double> sizes_;
  std::vector<double> seconds_;
};

// How fast a file is read in blocks of this size, so many of them under way at a time.
struct DiskRate {
  uint64_t block_bytes = 0;
  int queue_depth = 0;
  double bytes_per_second = 0;

  bool operator==(const DiskRate&) const = default;
};

struct MachineProfile {
  std::string kernels;                 // the instruction set of the inner loops
  int threads = 0;                     // that compute
  double memory_bytes_per_second = 0;  // read by these threads together
  std::string device{};                // that computes, in words; empty: the CPU
  // Seconds by bytes copied between the device and pinned memory: one of several copies that follow
  // each other, and one by itself of rows that something waits for.
  Curve link{};                        // to the device
  Curve rows_up{};                     // to the device
  Curve rows_down{};                   // from it
  double rows_take_while_copying = 1;  // on their way up, times as long
  // While the CPU computes beside a device and weights are copied to it all the time: both take of
  // the memory's rate.
  double cpu_takes_while_copying = 1;           // times as long an expert takes
  double copying_takes_while_cpu_computes = 1;  // times as long
  std::vector<DiskRate> disk;
  double disk_bytes_per_second = 0;  // as the engine reads, over much of the file
  // While both go on: reading takes processor time and some of the memory's rate.
  double disk_bytes_per_second_while_computing = 0;
  double computing_takes_while_reading = 1;  // times as long
  // While both go on and what is read goes into memory that the process has not used before: the
  // system has to find it first, which takes processor time as well.
  double disk_bytes_per_second_into_new_memory = 0;
  double computing_takes_while_finding_memory = 1;  // times as long

  bool operator==(const MachineProfile&) const = default;
};

// All that a faster or slower link changes.
struct LinkCurve {
  const char* name;
  Curve MachineProfile::*curve;
};
inline constexpr std::array<LinkCurve, 3> kLinkCurves{{{"link", &MachineProfile::link},
                                                       {"rows_up", &MachineProfile::rows_up},
                                                       {"rows_down", &MachineProfile::rows_down}}};

// All that a faster or slower disk changes.
inline constexpr std::array<double MachineProfile::*, 3> kDiskRates{
    &MachineProfile::disk_bytes_per_second, &MachineProfile::disk_bytes_per_second_while_computing,
    &MachineProfile::disk_bytes_per_second_into_new_memory};

// One kind of layer. Seconds by rows unless said. Weights come from memory, never from a cache;
// those that every row uses are arranged (Processor::arrange), as they are in a run that keeps
// them.
struct LayerProfile {
  Curve attention_products;  // an attention task but attention itself: norm, projections, rope,
                             // keys and values written to their cache
  Curve attend_decode;       // one row, by the cached positions it sees; of several at once
  Curve attend_prefill;      // a whole prompt that attends to itself, by its tokens
  Curve route;               // norm, router product, choice
  Curve expert;              // one expert, its weights as they lie in the file
  Curve expert_arranged;     // one expert whose weights are arranged
  Curve combine;             // weighted sum of the experts' outputs, and the shared expert

  // Where a device computes all of the above: what the CPU beside it takes. Empty where no device
  // is, or where that was not measured.
  Curve expert_on_cpu{};         // one expert in the program's memory, as it lies in the file; of
                                 // layers that choose experts
  Curve attend_decode_on_cpu{};  // as attend_decode

  bool operator==(const LayerProfile&) const = default;
};

struct LayerCurve {
  const char* name;
  Curve LayerProfile::*curve;
  bool beside_device = false;  // the CPU's there; may be empty
};
inline constexpr std::array<LayerCurve, 9> kLayerCurves{{
    {"attention_products", &LayerProfile::attention_products},
    {"attend_decode", &LayerProfile::attend_decode},
    {"attend_prefill", &LayerProfile::attend_prefill},
    {"route", &LayerProfile::route},
    {"expert", &LayerProfile::expert},
    {"expert_arranged", &LayerProfile::expert_arranged},
    {"combine", &LayerProfile::combine},
    {"expert_on_cpu", &LayerProfile::expert_on_cpu, true},
    {"attend_decode_on_cpu", &LayerProfile::attend_decode_on_cpu, true},
}};

struct ModelProfile {
  std::vector<LayerProfile> kinds;
  std::vector<int> kind_of_layer;  // indices into kinds
  Curve embed;
  Curve logits;

  const LayerProfile& of_layer(int64_t layer) const {
    return kinds[static_cast<size_t>(kind_of_layer[static_cast<size_t>(layer)])];
  }
  bool operator==(const ModelProfile&) const = default;
};

struct Profile {
  MachineProfile machine;
  ModelProfile model;

  bool operator==(const Profile&) const = default;
};

// A profile as JSON, with the fingerprint of what was measured.
std::string write_profile(const Profile& profile, std::string_view fingerprint);

// Nothing where the text is not a whole and sane profile of today's form, or is of something else.
std::optional<Profile> read_profile(std::string_view text, std::string_view fingerprint);

}  // namespace klotski
