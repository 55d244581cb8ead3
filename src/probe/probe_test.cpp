#include "probe/probe.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "base/bytes.h"
#include "base/cpu_limit.h"
#include "device/testing.h"
#include "kernels/testing.h"
#include "probe/fingerprint.h"
#include "probe/history.h"
#include "probe/testing.h"

namespace klotski {
namespace {

namespace fs = std::filesystem;
using testing::TinyModel;

Profile made_up() {
  const Curve curve({1, 2}, {1e-3, 2e-3});
  const LayerProfile layer{.attention_products = curve,
                           .attend_decode = curve,
                           .attend_prefill = curve,
                           .route = curve,
                           .expert = curve,
                           .expert_arranged = curve,
                           .combine = curve};
  return {.machine = {.processors = {{.name = "k", .threads = 2, .memory_bytes_per_second = 5e10}},
                      .disks = {{.rates = {{kMiB, 8, 5e9}}, .bytes_per_second = 5e9}}},
          .model = {.kinds = {layer}, .kind_of_layer = {0, 0, 0}, .embed = curve, .logits = curve}};
}

class Probe : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(::testing::TempDir()) / ("klotski-probe-" + std::to_string(::getpid()));
    fs::remove_all(folder_);
    ::setenv("KLOTSKI_CACHE", folder_.c_str(), 1);
  }
  void TearDown() override {
    ::unsetenv("KLOTSKI_CACHE");
    fs::remove_all(folder_);
  }

  // Counts how often it was really measured.
  Probed probe_once(Precision precision = Precision::bf16) {
    return probe({.model = tiny_.description,
                  .checkpoint = tiny_.checkpoint,
                  .ops = cpu_processor(),
                  .host = cpu_processor(),
                  .precision = precision},
                 [this](const ProbeSubject&) {
                   ++measured_;
                   return made_up();
                 });
  }
  fs::path only_file() const {
    fs::path found;
    int files = 0;
    for (const auto& entry : fs::directory_iterator(folder_)) {
      found = entry.path();
      ++files;
    }
    EXPECT_EQ(files, 1);
    return found;
  }

  TinyModel tiny_{"mixtral"};
  fs::path folder_;
  int measured_ = 0;
};

TEST_F(Probe, MeasuresOnce) {
  const Probed first = probe_once();
  EXPECT_FALSE(first.cached);
  const Probed second = probe_once();
  EXPECT_TRUE(second.cached);
  EXPECT_EQ(measured_, 1);
  EXPECT_EQ(first.profile, made_up());
  EXPECT_EQ(second.profile, made_up());
  EXPECT_EQ(only_file().extension(), ".json");  // no unfinished file is left
}

TEST_F(Probe, AProfileThatRunsContradictIsMeasuredAgain) {
  probe_once();
  fs::last_write_time(only_file(), fs::file_time_type::clock::now() - std::chrono::hours(2));
  const std::time_t now = std::time(nullptr);
  for (int64_t run = 0; run < 5; ++run) {
    EXPECT_TRUE(probe_once().cached);
    const std::string why_not =
        remember({.when = utc_text(now - 60 + run),
                  .command = "bench",
                  .model = tiny_.checkpoint.folder().filename().string(),
                  .machine = machine_name(usable_cpus()),
                  .strategy = "klotski",
                  .sequences = 1,
                  .planned = {.seconds = 1, .generated_tokens = 10, .lanes = {}},
                  .measured = {.seconds = 2, .generated_tokens = 10, .lanes = {}}});
    ASSERT_EQ(why_not, "");
  }
  EXPECT_FALSE(probe_once().cached);
  EXPECT_TRUE(probe_once().cached);  // the runs are older than the new profile
  EXPECT_EQ(measured_, 2);
}

TEST_F(Probe, AnotherPrecisionIsAnotherProfile) {
  probe_once(Precision::bf16);
  probe_once(Precision::f32);
  EXPECT_EQ(measured_, 2);
  probe_once(Precision::bf16);
  EXPECT_EQ(measured_, 2);
}

TEST_F(Probe, OfADeviceTheCpuBesideItMatters) {
  testing::HostDevice device;
  for (const Processor* cpu :
       {static_cast<const Processor*>(nullptr), &reference_processor(), &cpu_processor()}) {
    const auto cached = [&] {
      return probe({.model = tiny_.description,
                    .checkpoint = tiny_.checkpoint,
                    .ops = cpu_processor(),
                    .host = cpu_processor(),
                    .precision = Precision::bf16,
                    .device = &device,
                    .device_bytes = kMiB,
                    .cpu = cpu},
                   [](const ProbeSubject&) { return made_up(); })
          .cached;
    };
    EXPECT_FALSE(cached());
    EXPECT_TRUE(cached());
  }
}

TEST_F(Probe, ABrokenFileIsMeasuredAnewAndMended) {
  probe_once();
  const fs::path file = only_file();
  for (const char* content : {"", "{", "{}", "[1,2]", "\xFF\xFE", "{\"format\":1}"}) {
    std::ofstream(file, std::ios::trunc) << content;
    EXPECT_FALSE(probe_once().cached) << content;
    EXPECT_TRUE(probe_once().cached) << content;
  }
  EXPECT_EQ(measured_, 7);
  fs::resize_file(file, 64 * kMiB);
  EXPECT_FALSE(probe_once().cached);
  EXPECT_TRUE(probe_once().cached);
}

TEST_F(Probe, OneOfAnotherMachineIsNotUsed) {
  probe_once();
  const fs::path file = only_file();
  std::ofstream(file, std::ios::trunc) << write_profile(made_up(), "another machine");
  EXPECT_FALSE(probe_once().cached);
}

TEST_F(Probe, WhatCannotBeStoredIsMeasuredEachTime) {
  ::setenv("KLOTSKI_CACHE", "/proc/no/such/folder", 1);
  EXPECT_NE(probe_once().why_not_kept.find("/proc/no/such/folder"), std::string::npos);
  probe_once();
  EXPECT_EQ(measured_, 2);
  probe_once();
  ::setenv("KLOTSKI_CACHE", folder_.c_str(), 1);
  fs::create_directories(folder_);
  std::ofstream(folder_ / "file") << "x";
  ::setenv("KLOTSKI_CACHE", (folder_ / "file").c_str(), 1);  // no folder
  EXPECT_FALSE(probe_once().cached);
  ::setenv("KLOTSKI_CACHE", (folder_ / "new").c_str(), 1);
  EXPECT_EQ(probe_once().why_not_kept, "");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_ / "new"), {}), 1);
}

TEST_F(Probe, ReallyMeasured) {
  ProbeLimits limits;
  limits.weight_bytes = 0;
  limits.disk_bytes = kMiB;
  limits.most_rows = 4;
  limits.most_bytes = 0;  // counts as the least
  const ProbeSubject subject{.model = tiny_.description,
                             .checkpoint = tiny_.checkpoint,
                             .ops = cpu_processor(),
                             .host = cpu_processor(),
                             .precision = Precision::bf16,
                             .limits = limits};
  const Probed first = probe(subject);
  const Probed second = probe(subject);
  EXPECT_FALSE(first.cached);
  EXPECT_TRUE(second.cached);
  EXPECT_EQ(first.profile, second.profile);
  EXPECT_GT(first.profile.machine.disk().bytes_per_second, 0);
  EXPECT_TRUE(first.profile.machine.links.empty());
  EXPECT_TRUE(first.profile.model.of_layer(0).expert_on_cpu.empty());
  EXPECT_TRUE(first.profile.model.of_layer(0).attend_decode_on_cpu.empty());
  EXPECT_LT(second.seconds, first.seconds);
}

// The tensors of a checkpoint without its files.
Checkpoint described(const Checkpoint& checkpoint) {
  return Checkpoint::described(checkpoint.folder(), checkpoint.tensors());
}

TEST_F(Probe, WithoutFilesThereIsNoDisk) {
  const Checkpoint no_files = described(tiny_.checkpoint);
  ProbeLimits limits;
  limits.weight_bytes = 0;
  limits.disk_bytes = kMiB;
  limits.most_rows = 4;
  limits.most_bytes = 0;
  const ProbeSubject subject{.model = tiny_.description,
                             .checkpoint = no_files,
                             .ops = cpu_processor(),
                             .host = cpu_processor(),
                             .precision = Precision::bf16,
                             .limits = limits};
  const Probed first = probe(subject);
  EXPECT_FALSE(first.cached);
  EXPECT_TRUE(first.profile.machine.disk().rates.empty());
  EXPECT_EQ(first.profile.machine.disk().bytes_per_second, 0.0);
  EXPECT_GT(first.profile.machine.cpu().memory_bytes_per_second, 0.0);
  const Probed second = probe(subject);
  EXPECT_TRUE(second.cached);
  EXPECT_EQ(first.profile, second.profile);
  EXPECT_FALSE(probe_once().cached);  // the model with files is measured for itself
  EXPECT_TRUE(probe(subject).cached);
}

TEST_F(Probe, AProfileWithoutADiskIsNoneOfFiles) {
  const auto without_disk = [this](const ProbeSubject&) {
    ++measured_;
    Profile profile = made_up();
    profile.machine.disk().rates.clear();
    profile.machine.disk().bytes_per_second = 0.0;
    return profile;
  };
  const Checkpoint no_files = described(tiny_.checkpoint);
  for (const bool has_files : {true, false}) {
    const ProbeSubject subject{.model = tiny_.description,
                               .checkpoint = has_files ? tiny_.checkpoint : no_files,
                               .ops = cpu_processor(),
                               .host = cpu_processor(),
                               .precision = Precision::bf16};
    probe(subject, without_disk);
    EXPECT_EQ(probe(subject, without_disk).cached, !has_files);
  }
  EXPECT_EQ(measured_, 3);
}

class Environment {
 public:
  Environment(const char* name, const char* value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    if (value == nullptr) {
      ::unsetenv(name);
    } else {
      ::setenv(name, value, 1);
    }
  }
  ~Environment() {
    if (before_) {
      ::setenv(name_, before_->c_str(), 1);
    } else {
      ::unsetenv(name_);
    }
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

TEST(CacheFolder, TheFirstAbsolutePathThatIsSet) {
  const Environment own("KLOTSKI_CACHE", "/own");
  const Environment xdg("XDG_CACHE_HOME", "/xdg");
  const Environment home("HOME", "/home/someone");
  EXPECT_EQ(cache_folder(), "/own");
  const Environment no_own("KLOTSKI_CACHE", "relative");
  EXPECT_EQ(cache_folder(), "/xdg/klotski");
  const Environment no_xdg("XDG_CACHE_HOME", "");
  EXPECT_EQ(cache_folder(), "/home/someone/.cache/klotski");
  const Environment no_home("HOME", nullptr);
  EXPECT_FALSE(cache_folder());
}

TEST(Fingerprint, TheProcessorsName) {
  const fs::path file = fs::path(::testing::TempDir()) / ("cpuinfo-" + std::to_string(::getpid()));
  const auto name = [&](const char* content) {
    std::ofstream(file, std::ios::trunc) << content;
    return processor_name(file);
  };
  EXPECT_EQ(name("processor\t: 0\nmodel\t\t: 85\nmodel name\t: A CPU @ 2 GHz\n\nprocessor\t: 1\n"
                 "model name\t: A CPU @ 2 GHz\n"),
            "A CPU @ 2 GHz");
  EXPECT_EQ(name("processor\t: 0\nCPU implementer\t: 0x41\nCPU variant\t: 0x1\n"
                 "CPU part\t: 0xd40\nCPU revision\t: 1\n\n"),
            "0x41 0x1 0xd40 1");
  EXPECT_EQ(name(""), "unknown");
  fs::remove(file);
  EXPECT_EQ(processor_name("/absent"), "unknown");
}

TEST(Fingerprint, DependsOnShapesTypesAndOperations) {
  const TinyModel tiny("mixtral");
  const auto print = [&](const ModelDescription& model, DType type, const std::string& ops,
                         int threads = 2) {
    return fingerprint(model, testing::all_of_type(type), {ops, threads}, Precision::bf16,
                       tiny.folder);
  };
  const std::string one = print(tiny.description, DType::BF16, "neon");
  EXPECT_EQ(print(tiny.description, DType::BF16, "neon"), one);
  EXPECT_NE(print(tiny.description, DType::F16, "neon"), one);
  EXPECT_NE(print(tiny.description, DType::BF16, "reference"), one);
  EXPECT_NE(print(tiny.description, DType::BF16, "neon", 3), one);
  ModelDescription wider = tiny.description;
  wider.layers.back().feed_forward.width += 8;
  EXPECT_NE(print(wider, DType::BF16, "neon"), one);
  ModelDescription deeper = tiny.description;
  deeper.layers.push_back(deeper.layers.back());
  EXPECT_NE(print(deeper, DType::BF16, "neon"), one);
  EXPECT_NE(fingerprint(tiny.description, testing::all_of_type(DType::BF16), {"neon", 2},
                        Precision::bf16, {}),
            one);
}

}  // namespace
}  // namespace klotski
