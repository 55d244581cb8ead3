#include "probe/probe.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <string>
#include <string_view>
#include <system_error>

#include "base/cpu_limit.h"
#include "base/error.h"
#include "base/file.h"
#include "model/units.h"
#include "probe/beside_device.h"
#include "probe/cache_file.h"
#include "probe/fingerprint.h"
#include "probe/history.h"
#include "probe/link.h"
#include "probe/machine.h"
#include "probe/model.h"
#include "probe/ops_arena.h"
#include "probe/repeating.h"

namespace klotski {

namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMostProfileBytes = kMiB;

// An absolute path: one relative to wherever the program happens to run is of no use.
std::optional<fs::path> folder_in(const char* variable) {
  const char* value = std::getenv(variable);
  if (value == nullptr || *value != '/') return std::nullopt;
  return fs::path(value);
}

// FNV-1a: only names a file; the text itself decides.
uint64_t hash_of(std::string_view text) {
  uint64_t hash = 0xCBF29CE484222325u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  return hash;
}

std::optional<fs::path> stored_at(std::string_view fingerprint) {
  const std::optional<fs::path> folder = cache_folder();
  if (!folder) return std::nullopt;
  return *folder / fmt::format("profile-{:016x}.json", hash_of(fingerprint));
}

std::optional<Profile> load(const fs::path& path, std::string_view fingerprint) {
  std::error_code error;
  if (!fs::exists(path, error)) return std::nullopt;
  try {
    return read_profile(read_text_file(path, kMostProfileBytes), fingerprint);
  } catch (const Error&) {
    return std::nullopt;
  }
}

// Whether runs of the model since its profile was stored went otherwise than it foretells.
bool is_outdated(const fs::path& path, const std::string& model) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return false;
  std::vector<RunRecord> runs = remembered(machine_name(usable_cpus()));
  std::erase_if(runs, [&](const RunRecord& run) { return run.model != model; });
  return runs_contradict_profile(runs, status.st_mtime, std::time(nullptr));
}

// Whether a profile has all that every prediction needs.
bool is_of(const Profile& profile, const ProbeSubject& subject) {
  const bool has_disk = subject.checkpoint.shard_count() > 0;
  return profile.machine.disk().rates.empty() != has_disk &&
         std::ssize(profile.model.kind_of_layer) == subject.model.layer_count();
}

std::optional<fs::path> largest_file(const TensorSource& checkpoint) {
  std::optional<fs::path> path;
  uint64_t bytes = 0;
  for (uint32_t shard = 0; shard < checkpoint.shard_count(); ++shard) {
    const std::shared_ptr<const File> file = checkpoint.file(shard);
    if (path && file->size() <= bytes) continue;
    path = file->path();
    bytes = file->size();
  }
  return path;
}

// Bytes of the unit that a run reads most: an expert, or the dense part of a layer.
uint64_t unit_bytes(const ModelDescription& model, const StoredTypes& types) {
  const UnitKind kind =
      units_of(model, UnitKind::expert).empty() ? UnitKind::dense : UnitKind::expert;
  return weight_bytes(unit_tensors(model, units_of(model, kind).front()), types);
}

// The operations that are measured, in words.
std::string kernels_of(const ProbeSubject& subject) {
  if (!subject.device) return subject.ops.name();
  const DeviceInfo& info = subject.device->info();
  return fmt::format("{} {}.{} of {} bytes beside {}", info.name, info.major, info.minor,
                     subject.device_bytes, subject.cpu ? subject.cpu->name() : "nothing");
}

}  // namespace

std::optional<fs::path> cache_folder() {
  if (const auto folder = folder_in("KLOTSKI_CACHE")) return folder;
  if (const auto folder = folder_in("XDG_CACHE_HOME")) return *folder / "klotski";
  if (const auto folder = folder_in("HOME")) return *folder / ".cache" / "klotski";
  return std::nullopt;
}

Profile measure_profile(const ProbeSubject& subject) {
  Tier tier("probe", std::max(subject.limits.most_bytes, ProbeLimits::kLeastBytes));
  const StoredTypes types = stored_types(subject.model, subject.checkpoint);
  MachineProfile machine = measure_machine(subject.host, largest_file(subject.checkpoint),
                                           unit_bytes(subject.model, types), tier, subject.limits);
  if (!subject.device) {
    return {std::move(machine), measure_model(subject.model, types, subject.ops, subject.precision,
                                              tier, subject.limits)};
  }
  machine.cpu().tier = kHostTier;
  machine.processors.push_back({.tier = kComputeTier, .name = subject.device->info().name});
  Tier device_tier("probe", subject.device_bytes);
  Profile profile{std::move(machine),
                  measure_model(subject.model, types, subject.ops, subject.precision, device_tier,
                                subject.limits)};
  const OpsArena there(device_tier, subject.ops, "bytes to copy", device_tier.limit_bytes() / 4);
  profile.machine.links = {measure_link(subject.host, *subject.device, tier, there.bytes())};
  if (subject.cpu) {
    const PartsBench cpu{tier, subject.limits, *subject.cpu, subject.precision, types};
    measure_beside_device(cpu, subject.model, *subject.device, there.bytes(), profile);
  }
  return profile;
}

Probed probe(const ProbeSubject& subject, const MeasureProfile& measure) {
  const auto start = Clock::now();
  const auto done = [&](Profile profile, bool cached) -> Probed {
    return {.profile = std::move(profile),
            .cached = cached,
            .seconds = std::chrono::duration<double>(Clock::now() - start).count()};
  };
  const std::string print =
      fingerprint(subject.model, stored_types(subject.model, subject.checkpoint),
                  {kernels_of(subject), subject.host.threads()}, subject.precision,
                  largest_file(subject.checkpoint));
  const std::optional<fs::path> path = stored_at(print);
  bool contradicted = false;
  if (path) {
    std::optional<Profile> found = load(*path, print);
    if (found && is_of(*found, subject)) {
      contradicted = is_outdated(*path, subject.checkpoint.folder().filename().string());
      if (!contradicted) return done(std::move(*found), true);
    }
  }
  Profile measured = measure(subject);
  const std::string why_not_kept = path ? replace_cache_file(*path, write_profile(measured, print))
                                        : std::string(kNoCacheFolder);
  Probed probed = done(std::move(measured), false);
  probed.contradicted = contradicted;
  probed.why_not_kept = why_not_kept;
  return probed;
}

}  // namespace klotski
