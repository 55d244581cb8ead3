#pragma once

// Times that a machine takes for its work, as measured: pure data, for predictions of how long work
// will take.

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/tier.h"

namespace klotski {

// Seconds of a piece of work by its size, known at the sizes that were measured.
class Curve {
 public:
  Curve() = default;  // nothing measured: takes no time
  // Refuses (internal) other than as many sizes as seconds, at least one, all positive and finite,
  // sizes ascending.
  Curve(std::vector<double> sizes, std::vector<double> seconds);

  // Seconds for a size: between points along a straight line. A size smaller than the first takes
  // as long as the first: mostly the weights are read. Beyond the last along the line through the
  // last two, but never less than the last; where only one was measured, in proportion to its size.
  double at(double size) const;

  // The curve of a machine that is `factor` times as fast.
  Curve faster(double factor) const;

  bool empty() const { return sizes_.empty(); }
  std::span<const double> sizes() const { return sizes_; }
  std::span<const double> seconds() const { return seconds_; }
  bool operator==(const Curve&) const = default;

 private:
  std::vector<double> sizes_;
  std::vector<double> seconds_;
};

// Rate of reading a file in blocks of block_bytes, queue_depth of them under way at a time.
struct DiskRate {
  uint64_t block_bytes = 0;
  int queue_depth = 0;
  double bytes_per_second = 0;

  bool operator==(const DiskRate&) const = default;
};

// One processor, and how much longer it takes while something else goes on.
struct ProcessorProfile {
  TierId tier = kComputeTier;          // the memory it computes in
  std::string name{};                  // a device in words; a CPU's instruction set of inner loops
  int threads = 0;                     // a CPU's threads that compute
  double memory_bytes_per_second = 0;  // a CPU's reads, by these threads together
  // Times as long: while weights are copied to a device all the time, which takes of the memory's
  // rate; while a disk is read, which takes processor time too; and while a disk is read into
  // memory that the process has not used before, which the system has to find first.
  double takes_while_copying = 1;
  double takes_while_reading = 1;
  double takes_while_finding_memory = 1;

  bool operator==(const ProcessorProfile&) const = default;
};

// One link between a device and pinned memory: seconds by bytes copied.
struct LinkProfile {
  TierId from = kHostTier;
  TierId to = kComputeTier;  // the device's
  Curve weights{};           // to the device, one of several copies that follow each other
  Curve rows_up{};           // to the device, a single copy that something waits for
  Curve rows_down{};         // from the device, a single copy that something waits for
  double rows_take_while_copying = 1;  // times as long on the way up while weights are copied
  double takes_while_computing = 1;    // weights, times as long while the CPU computes

  bool operator==(const LinkProfile&) const = default;
};

// One disk. Rates of 0 were not measured.
struct DiskProfile {
  TierId tier = kDiskTier;
  std::vector<DiskRate> rates{};
  double bytes_per_second = 0;                  // as the engine reads, over much of the file
  double bytes_per_second_while_computing = 0;  // while the CPU computes
  // Rate while the CPU computes, into memory that the process has not used before.
  double bytes_per_second_into_new_memory = 0;

  bool operator==(const DiskProfile&) const = default;
};

// All that was measured of a machine: one entry for each processor, link and disk.
struct MachineProfile {
  std::vector<ProcessorProfile> processors = {ProcessorProfile{}};  // the CPU, then devices
  std::vector<LinkProfile> links{};
  std::vector<DiskProfile> disks = {DiskProfile{}};  // the model's disk first

  const ProcessorProfile& cpu() const { return processors.front(); }
  ProcessorProfile& cpu() { return processors.front(); }
  const DiskProfile& disk() const { return disks.front(); }
  DiskProfile& disk() { return disks.front(); }
  bool has_device() const { return processors.size() > 1; }
  // A link; one without measurements, which takes no time, where there is no such link.
  const LinkProfile& link(TierId from = kHostTier, TierId to = kComputeTier) const;

  bool operator==(const MachineProfile&) const = default;
};

// All that a faster or slower link changes.
struct LinkCurve {
  const char* name;
  Curve LinkProfile::*curve;
};
inline constexpr std::array<LinkCurve, 3> kLinkCurves{{{"weights", &LinkProfile::weights},
                                                       {"rows_up", &LinkProfile::rows_up},
                                                       {"rows_down", &LinkProfile::rows_down}}};

// All that a faster or slower disk changes.
inline constexpr std::array<double DiskProfile::*, 3> kDiskRates{
    &DiskProfile::bytes_per_second, &DiskProfile::bytes_per_second_while_computing,
    &DiskProfile::bytes_per_second_into_new_memory};

// Times of one kind of layer: seconds by rows unless said. Weights come from memory, never from a
// cache; weights that every row uses are arranged (Processor::arrange), as they are in a run that
// keeps them.
struct LayerProfile {
  Curve attention_products;  // an attention task but attention itself: norm, projections, rope,
                             // keys and values written to their cache
  Curve attend_decode;       // one of several rows at once, by the cached positions it sees
  Curve attend_prefill;      // a whole prompt that attends to itself, by its tokens
  Curve route;               // norm, router product, choice
  Curve expert;           // one expert, its weights as they lie in the file; on a device its share
                          // of a call of several
  Curve expert_arranged;  // one expert whose weights are arranged
  Curve combine;          // weighted sum of the experts' outputs, and the shared expert

  // Times of the CPU on a machine whose device computes all of the above. Empty where there is no
  // device, or where they were not measured.
  Curve expert_on_cpu{};         // one expert in the program's memory, as it lies in the file; only
                                 // in layers that choose experts
  Curve attend_decode_on_cpu{};  // like attend_decode

  // Like attend_decode, of a decoder's rows to the positions of an encoder's output; empty in
  // models without an encoder, and in its layers.
  Curve attend_encoded{};

  // The attention that sees most of the positions that a decoding row sees.
  const Curve& attend_most() const {
    return attend_encoded.empty() ? attend_decode : attend_encoded;
  }

  bool operator==(const LayerProfile&) const = default;
};

struct LayerCurve {
  const char* name;
  Curve LayerProfile::*curve;
  bool beside_device = false;  // the CPU's there; may be empty
  bool in_all_layers = true;
};
inline constexpr std::array<LayerCurve, 10> kLayerCurves{{
    {"attention_products", &LayerProfile::attention_products},
    {"attend_decode", &LayerProfile::attend_decode},
    {"attend_prefill", &LayerProfile::attend_prefill},
    {"route", &LayerProfile::route},
    {"expert", &LayerProfile::expert},
    {"expert_arranged", &LayerProfile::expert_arranged},
    {"combine", &LayerProfile::combine},
    {"expert_on_cpu", &LayerProfile::expert_on_cpu, true},
    {"attend_decode_on_cpu", &LayerProfile::attend_decode_on_cpu, true},
    {"attend_encoded", &LayerProfile::attend_encoded, false, false},
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

// A profile as JSON, with the fingerprint of the machine and model that were measured.
std::string write_profile(const Profile& profile, std::string_view fingerprint);

// A profile from its JSON; nothing where the text is not a whole and sane profile of today's form,
// or has another fingerprint.
std::optional<Profile> read_profile(std::string_view text, std::string_view fingerprint);

}  // namespace klotski
