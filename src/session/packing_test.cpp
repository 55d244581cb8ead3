// Sessions that pack plain experts while they read them.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <vector>

#include "base/process_memory.h"
#include "base/testing.h"
#include "session/testing.h"
#include "synth/synth.h"
#include "tensor/half.h"
#include "weights/testing.h"

namespace klotski {
namespace {

const testing::Tokens kPackedPrompts = {{1, 5, 9, 13}, {1, 2}};
constexpr int64_t kPackedGenerated = 4;

// A model of 200 MB whose experts do not all fit as they are.
class PackingSession : public ::testing::Test {
 protected:
  PackingSession() {
    synthesise({.shape = "L=2,H=512,F=2048,E=16,K=2,heads=4,kv_heads=2,vocab=512",
                .folder = folder_,
                .share = {},
                .tokenizer = {}},
               [](uint64_t, uint64_t) {});
  }

  // Overwrites a matrix of an expert with numbers of very different sizes.
  void make_unpackable() const {
    const Checkpoint checkpoint = Checkpoint::open(folder_);
    for (const TensorEntry& entry : checkpoint.tensors()) {
      if (entry.name.find("experts.3.") == std::string::npos) continue;
      std::vector<uint16_t> numbers(entry.bytes / sizeof(uint16_t));
      for (size_t i = 0; i < numbers.size(); ++i) {
        numbers[i] = float_to_bf16(std::ldexp(1.0f, -static_cast<int>(i % 60)));
      }
      std::fstream file(checkpoint.file(entry.shard)->path(),
                        std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(static_cast<std::streamoff>(entry.offset));
      file.write(reinterpret_cast<const char*>(numbers.data()),
                 static_cast<std::streamsize>(entry.bytes));
      return;
    }
  }

  static SessionOptions options(Packing packing = Packing::always) {
    SessionOptions options;
    options.device = "cpu";
    options.packing = packing;
    return options;
  }

  // Leaves a session an eighth less memory than all experts want; packed, they want a quarter less.
  // The first round measures the machine. What the program keeps after a plan counts in the next
  // one: a sanitizer keeps what is freed, up to a quarter of a GiB, so that it takes a few rounds
  // until the program no longer grows by more than that eighth while it plans.
  void limit_memory(Session& session) {
    constexpr uint64_t kExpertBytes = 3 * 512 * 2048 * 2;
    constexpr int kMostRounds = 8;
    const bool packs = session.options().packing != Packing::never;
    for (int round = 0; round < 2 || (packs && remarks_.empty() && round < kMostRounds); ++round) {
      session.set_limits({});
      const uint64_t before = resident_bytes();
      const uint64_t wanted = session.plan(workload(), PlanBy::prediction).memory.total_bytes();
      const uint64_t kept = resident_bytes() - std::min(before, resident_bytes());
      RunLimits limits;
      limits.ram_bytes = wanted + kept - 4 * kExpertBytes;
      session.set_limits(limits);
      session.plan(workload(), PlanBy::prediction);
    }
  }

  testing::Tokens generated_as_they_are() const {
    Session plain(open_model(folder_), options(Packing::never));
    plain.plan(workload());
    plain.load();
    return testing::generate(plain, kPackedPrompts, kPackedGenerated);
  }

  static Workload workload() { return testing::workload_of(kPackedPrompts, kPackedGenerated); }

  // The machine is measured once for all tests: of other programs as well, where they say where.
  static std::filesystem::path cache() {
    static const testing_files::ScratchFolder kFolder;
    const char* given = std::getenv("KLOTSKI_CACHE");
    return given != nullptr ? std::filesystem::path(given) : kFolder.path();
  }

  testing_files::ScratchFolder scratch_;
  testing_files::ScopedEnvironment cache_{"KLOTSKI_CACHE", cache().c_str()};
  std::filesystem::path folder_ = scratch_.path() / "model";
  std::vector<Remark> remarks_;
  SessionEvents events_{.remark = [this](const Remark& remark) {
    if (remark.topic == Remark::Topic::experts_packed) remarks_.push_back(remark);
  }};
};

TEST_F(PackingSession, PacksExpertsOfWhichNotAllFit) {
  Session session(open_model(folder_), options(), events_);
  limit_memory(session);
  ASSERT_FALSE(remarks_.empty());
  session.load();
  const testing::Tokens packed = testing::generate(session, kPackedPrompts, kPackedGenerated);
  session.unload();
  EXPECT_EQ(generated_as_they_are(), packed);
}

TEST_F(PackingSession, ExpertsThatCannotBePackedStayAsTheyAre) {
  make_unpackable();
  Session session(open_model(folder_), options(), events_);
  limit_memory(session);
  ASSERT_FALSE(remarks_.empty());
  remarks_.clear();
  session.load();
  ASSERT_EQ(remarks_.size(), 1u);
  EXPECT_NE(remarks_[0].text.find("cannot be BF16_COMPACT"), std::string::npos) << remarks_[0].text;
  EXPECT_EQ(session.options().packing, Packing::never);
  const testing::Tokens found = testing::generate(session, kPackedPrompts, kPackedGenerated);
  session.unload();
  EXPECT_EQ(generated_as_they_are(), found);
}

TEST_F(PackingSession, NothingIsPackedWhereThatIsNotWanted) {
  Session session(open_model(folder_), options(Packing::never), events_);
  limit_memory(session);
  EXPECT_TRUE(remarks_.empty());
}

}  // namespace
}  // namespace klotski
