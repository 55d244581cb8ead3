// A session whose disk or device never answers.

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <thread>

#include "device/testing.h"
#include "kernels/testing.h"
#include "session/session.h"
#include "session/testing.h"

namespace klotski {
namespace {

using ::klotski::testing::generate;
using ::klotski::testing::HostDevice;
using ::klotski::testing::tiny_model;
using ::klotski::testing::Tokens;

// Reads of a disk that come back only when the test lets them.
class HangingDisk final : public ReadHook {
 public:
  int64_t completed(const ReadRequest&, int64_t result) noexcept override {
    hangs_.wait(true);
    return result;
  }
  void let_go() {
    hangs_ = false;
    hangs_.notify_all();
  }

 private:
  std::atomic<bool> hangs_{true};
};

// A processor whose attention ends only when the test lets it.
class HangingProcessor final : public ReferenceProcessor {
 public:
  void attention(std::span<const AttentionArguments> sequences) const override {
    hangs_.wait(true);
    ReferenceProcessor::attention(sequences);
    ++ended_;
  }
  void let_go() {
    hangs_ = false;
    hangs_.notify_all();
  }
  int ended() const { return ended_; }

 private:
  std::atomic<bool> hangs_{true};
  mutable std::atomic<int> ended_{0};
};

class Stall : public ::testing::Test {
 protected:
  Stall() {
    options_.device = "cpu";
    options_.kernels = "reference";
    // Longer than a read of the disks that tests run on.
    options_.pipeline.executor.stall_limit = std::chrono::milliseconds(1500);
    events_.remark = [this](const Remark& remark) {
      if (remark.topic == Remark::Topic::nothing_ends) ++told_;
    };
  }

  // The error of a session that computes while a task of it hangs. The session is destroyed.
  std::string end_of(std::optional<Session>& session, const std::function<void()>& loaded = {}) {
    const Tokens prompts = {{1, 5, 9, 13}, {1, 2}};
    constexpr int64_t kAnswer = 3;
    std::string message = "all went well";
    try {
      session->plan(testing::workload_of(prompts, kAnswer));
      session->load();
      if (loaded) loaded();
      generate(*session, prompts, kAnswer);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::device_lost);
      message = error.what();
    }
    EXPECT_THROW(session->unload(), Error);
    EXPECT_TRUE(session->loaded());
    session.reset();
    return message;
  }

  SessionOptions options_;
  SessionEvents events_;
  int told_ = 0;
};

TEST_F(Stall, OfADiskEndsTheSession) {
  static auto& disk = *new HangingDisk;  // a thread that was left alone uses it to the last
  options_.pipeline.disk.hook = &disk;
  std::optional<Session> session(std::in_place, tiny_model(), options_, events_);
  const std::string message = end_of(session);
  EXPECT_NE(message.find("no task has ended for 1."), std::string::npos) << message;
  EXPECT_NE(message.find("at work: [disk read load "), std::string::npos) << message;
  EXPECT_NE(message.find("2 unfinished sequences are lost"), std::string::npos) << message;
  EXPECT_EQ(told_, 1);
  disk.let_go();
}

// The sequences of the pass, which attention reads when it goes on, are still there.
TEST_F(Stall, OfAProcessorEndsTheSession) {
  static auto& processor = *new HangingProcessor;
  OpenedTarget opened{.device = nullptr, .target = Target{.ops = processor}};
  std::optional<Session> session(std::in_place, tiny_model(), std::move(opened), options_, events_);
  const std::string message = end_of(session);
  EXPECT_NE(message.find("at work: [compute attention "), std::string::npos) << message;
  processor.let_go();
  while (processor.ended() == 0) std::this_thread::yield();
}

// While weights are loaded, and in a pass, for which few of them stay on the device.
TEST_F(Stall, OfADeviceEndsTheSessionWhereverItComes) {
  static const auto& processor = *new ReferenceProcessor;  // threads that were left alone use it
  options_.device = "auto";
  options_.limits.expert_slots = 4;
  for (const bool in_a_pass : {false, true}) {
    SCOPED_TRACE(in_a_pass);
    auto device = std::make_unique<HostDevice>();
    HostDevice& hanging = *device;
    if (!in_a_pass) hanging.hang_at_copy(7);
    Target target{.ops = processor, .device = device.get()};
    OpenedTarget opened{.device = std::move(device), .target = std::move(target)};
    std::optional<Session> session(std::in_place, tiny_model(), std::move(opened), options_,
                                   events_);
    const std::string message = end_of(session, [&] {
      if (in_a_pass) hanging.hang_at_copy(3);
    });
    EXPECT_NE(message.find("no task has ended for 1."), std::string::npos) << message;
    EXPECT_EQ(message.find("at work: []"), std::string::npos) << message;
    EXPECT_EQ(message.find("sequences are lost") != std::string::npos, in_a_pass) << message;
    hanging.let_go();
  }
}

}  // namespace
}  // namespace klotski
