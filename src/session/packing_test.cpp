// Sessions that pack plain experts while they read them.

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <vector>

#include "base/testing.h"
#include "session/testing.h"
#include "synth/synth.h"
#include "tensor/half.h"
#include "weights/testing.h"

namespace klotski {
namespace {

const testing::Tokens kPackedPrompts = {{1, 5, 9, 13}, {1, 2}};
constexpr int64_t kPackedGenerated = 4;

// A model of 100 MB, and a machine on which reading experts from disk takes longest.
class PackingSession : public ::testing::Test {
 protected:
  PackingSession() {
    synthesise({.shape = "L=2,H=512,F=1024,E=16,K=2,heads=4,kv_heads=2,vocab=512",
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

  SessionOptions options() const {
    SessionOptions options;
    options.device = "cpu";
    options.pipeline.disk.bytes_per_second = 100'000'000;
    return options;
  }

  Workload workload() const { return testing::workload_of(kPackedPrompts, kPackedGenerated); }

  // Takes so much memory that three experts do not fit as they are; packed they do.
  void limit_memory(Session& session) const {
    session.set_limits({});
    const MemoryPlan all = session.plan(workload(), PlanBy::prediction).memory;
    const uint64_t expert = 3 * 512 * 1024 * 2;
    RunLimits limits;
    limits.ram_bytes = all.total_bytes() - 3 * expert;
    session.set_limits(limits);
  }

  testing_files::ScratchFolder scratch_;
  testing_files::ScopedEnvironment cache_{"KLOTSKI_CACHE", scratch_.path().c_str()};
  std::filesystem::path folder_ = scratch_.path() / "model";
  std::vector<Remark> remarks_;
  SessionEvents events_{.remark = [this](const Remark& remark) {
    if (remark.topic == Remark::Topic::experts_packed) remarks_.push_back(remark);
  }};
};

TEST_F(PackingSession, PacksExpertsThatFitOnlySo) {
  Session session(open_model(folder_), options(), events_);
  limit_memory(session);
  EXPECT_TRUE(remarks_.empty()) << "all fitted as they were";
  session.plan(workload(), PlanBy::prediction);
  ASSERT_EQ(remarks_.size(), 1u);
  EXPECT_EQ(
      session.explain(workload()).run().policy.layout.compute().slots[index_of(UnitKind::expert)],
      32);
  session.load();
  const testing::Tokens packed = testing::generate(session, kPackedPrompts, kPackedGenerated);

  SessionOptions plain_options = options();
  plain_options.packs_experts = false;
  plain_options.limits = session.options().limits;
  Session plain(open_model(folder_), plain_options, events_);
  plain.plan(workload(), PlanBy::prediction);
  plain.load();
  EXPECT_EQ(testing::generate(plain, kPackedPrompts, kPackedGenerated), packed);
  EXPECT_EQ(remarks_.size(), 1u);
}

TEST_F(PackingSession, ExpertsThatCannotBePackedStayAsTheyAre) {
  make_unpackable();
  Session session(open_model(folder_), options(), events_);
  limit_memory(session);
  session.plan(workload(), PlanBy::prediction);
  ASSERT_EQ(remarks_.size(), 1u);
  session.load();
  ASSERT_EQ(remarks_.size(), 2u);
  EXPECT_NE(remarks_[1].text.find("cannot be BF16_COMPACT"), std::string::npos) << remarks_[1].text;
  EXPECT_EQ(session.options().packs_experts, false);
  const testing::Tokens found = testing::generate(session, kPackedPrompts, kPackedGenerated);
  Session plain(open_model(folder_), options());
  plain.plan(workload());
  plain.load();
  EXPECT_EQ(testing::generate(plain, kPackedPrompts, kPackedGenerated), found);
}

}  // namespace
}  // namespace klotski
