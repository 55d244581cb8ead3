#include "probe/history.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "base/bytes.h"

namespace klotski {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMachine = "a processor, avx2, 8 threads";

RunRecord record(int64_t number, const std::string& machine = kMachine) {
  return {.when = utc_text(1'900'000'000 + number),
          .command = "bench",
          .model = "m",
          .machine = machine,
          .strategy = "klotski",
          .sequences = number,
          .planned = {.seconds = 1, .lanes = {{"compute", 1, 0}}},
          .measured = {.seconds = 2, .lanes = {{"compute", 2, 0}}}};
}

class History : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(::testing::TempDir()) / ("klotski-history-" + std::to_string(::getpid()));
    fs::remove_all(folder_);
    ::setenv("KLOTSKI_CACHE", folder_.c_str(), 1);
  }
  void TearDown() override {
    ::unsetenv("KLOTSKI_CACHE");
    fs::remove_all(folder_);
  }
  fs::path file() const { return folder_ / "history.jsonl"; }
  void add(const std::string& text) const { std::ofstream(file(), std::ios::app) << text; }
  std::string contents() const {
    std::ifstream in(file(), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  fs::path folder_;
};

TEST_F(History, NoFileIsNoRuns) { EXPECT_TRUE(remembered(kMachine).empty()); }

TEST_F(History, RemembersRunsOfEachMachine) {
  EXPECT_EQ(remember(record(1)), "");
  EXPECT_EQ(remember(record(2, "another")), "");
  EXPECT_EQ(remember(record(3)), "");
  EXPECT_EQ(remembered(kMachine), (std::vector{record(1), record(3)}));
  EXPECT_EQ(remembered("another"), std::vector{record(2, "another")});
  EXPECT_TRUE(remembered("a third").empty());
}

TEST_F(History, BrokenLinesAreSkipped) {
  EXPECT_EQ(remember(record(1)), "");
  add("\n\nnot JSON\n{\"format\": 1}\n" + std::string(100'000, '[') + "\n" +
      std::string("\0\xFF\n", 3));
  EXPECT_EQ(remember(record(2)), "");
  EXPECT_EQ(remembered(kMachine), (std::vector{record(1), record(2)}));
}

TEST_F(History, ATornLineCostsOnlyItself) {
  EXPECT_EQ(remember(record(1)), "");
  add(write_run_record(record(2)).substr(0, 50));  // no end
  EXPECT_EQ(remember(record(3)), "");
  EXPECT_EQ(remembered(kMachine), (std::vector{record(1), record(3)}));
}

TEST_F(History, StaysBoundedAndKeepsTheNewest) {
  const int64_t runs = 3 * static_cast<int64_t>(kMiB / write_run_record(record(1)).size());
  uint64_t largest = 0;
  for (int64_t i = 0; i < runs; ++i) {
    EXPECT_EQ(remember(record(i)), "");
    if (i % 50 == 0) largest = std::max<uint64_t>(largest, fs::file_size(file()));
  }
  EXPECT_GT(largest, kMiB / 2);
  EXPECT_LT(largest, kMiB + 10 * kKiB);
  const std::vector<RunRecord> kept = remembered(kMachine);
  ASSERT_GT(kept.size(), 500u);
  for (size_t i = 0; i < kept.size(); ++i) {  // the last of them, none missing
    ASSERT_EQ(kept[i], record(runs - static_cast<int64_t>(kept.size() - i)));
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1) << "nothing is left behind";
}

TEST_F(History, OfAHugeFileOnlyTheEndIsRead) {
  EXPECT_EQ(remember(record(1)), "");
  fs::resize_file(file(), 8 * kGiB);  // a hole
  add("\n" + write_run_record(record(2)) + "\n");
  EXPECT_EQ(remembered(kMachine), std::vector{record(2)});
  EXPECT_EQ(remember(record(3)), "");  // the file shrinks again
  EXPECT_LT(fs::file_size(file()), kMiB);
  EXPECT_EQ(remembered(kMachine), (std::vector{record(2), record(3)}));
}

TEST_F(History, AHugeLineWithoutAnEndIsDropped) {
  EXPECT_EQ(remember(record(1)), "");
  add(std::string(3 * kMiB, 'x'));
  EXPECT_EQ(remember(record(2)), "");
  EXPECT_EQ(remembered(kMachine), std::vector{record(2)});
  EXPECT_LT(fs::file_size(file()), kMiB);
}

TEST_F(History, ProcessesDoNotMixTheirLines) {
  constexpr int kProcesses = 4;
  constexpr int kRuns = 50;
  for (int process = 0; process < kProcesses; ++process) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child != 0) continue;
    bool kept = true;
    for (int i = 0; i < kRuns; ++i) kept &= remember(record(process * kRuns + i)).empty();
    ::_exit(kept ? 0 : 1);
  }
  for (int process = 0; process < kProcesses; ++process) {
    int status = 0;
    ASSERT_GT(::wait(&status), 0);
    EXPECT_EQ(status, 0);
  }
  std::vector<int> seen(kProcesses * kRuns, 0);
  for (const RunRecord& run : remembered(kMachine)) ++seen[static_cast<size_t>(run.sequences)];
  EXPECT_EQ(seen, std::vector<int>(kProcesses * kRuns, 1));
}

TEST_F(History, WhatCannotBeKeptIsTold) {
  std::ofstream(folder_) << "a file where the folder should be";
  EXPECT_NE(remember(record(1)).find("history.jsonl': Not a directory"), std::string::npos);
  EXPECT_TRUE(remembered(kMachine).empty());
  fs::remove(folder_);
  fs::create_directories(file());  // a folder where the file should be
  EXPECT_NE(remember(record(1)).find("Is a directory"), std::string::npos);
  EXPECT_TRUE(remembered(kMachine).empty());
  fs::remove_all(folder_);
  fs::create_directories(folder_);
  ASSERT_EQ(::mkfifo(file().c_str(), 0600), 0);  // must not wait for anyone
  EXPECT_NE(remember(record(1)).find("not a regular file"), std::string::npos);
  EXPECT_TRUE(remembered(kMachine).empty());
}

TEST_F(History, WithoutACacheFolderNothingIsKept) {
  ::setenv("KLOTSKI_CACHE", "relative", 1);
  const char* home = std::getenv("HOME");
  const char* xdg = std::getenv("XDG_CACHE_HOME");
  const std::string old_home = home != nullptr ? home : "";
  const std::string old_xdg = xdg != nullptr ? xdg : "";
  ::unsetenv("HOME");
  ::unsetenv("XDG_CACHE_HOME");
  EXPECT_NE(remember(record(1)).find("no cache folder"), std::string::npos);
  EXPECT_TRUE(remembered(kMachine).empty());
  EXPECT_FALSE(fs::exists("relative"));
  if (home != nullptr) ::setenv("HOME", old_home.c_str(), 1);
  if (xdg != nullptr) ::setenv("XDG_CACHE_HOME", old_xdg.c_str(), 1);
}

TEST_F(History, LinesEndAndTimesAreUtc) {
  EXPECT_EQ(remember(record(1)), "");
  EXPECT_EQ(contents(), write_run_record(record(1)) + "\n");
  EXPECT_EQ(utc_text(0), "1970-01-01T00:00:00Z");
  EXPECT_EQ(utc_text(1'900'000'000), "2030-03-17T17:46:40Z");
}

TEST(ProfileAge, RunsSinceItWasMeasuredMayContradictIt) {
  constexpr std::time_t kMeasured = 1'900'000'000;
  constexpr std::time_t kLater = kMeasured + 2 * 3600;
  const auto runs = [](int count, double takes) {
    std::vector<RunRecord> made;
    for (int64_t i = 1; i <= count; ++i) {
      RunRecord one = record(i);
      one.planned = {.seconds = 1, .generated_tokens = 10, .lanes = {}};
      one.measured = {.seconds = takes, .generated_tokens = 10, .lanes = {}};
      made.push_back(one);
    }
    return made;
  };
  EXPECT_TRUE(runs_contradict_profile(runs(5, 2.0), kMeasured, kLater));
  EXPECT_TRUE(runs_contradict_profile(runs(5, 0.5), kMeasured, kLater));
  EXPECT_FALSE(runs_contradict_profile(runs(4, 2.0), kMeasured, kLater)) << "too few";
  EXPECT_FALSE(runs_contradict_profile(runs(9, 1.05), kMeasured, kLater)) << "near enough";
  EXPECT_FALSE(runs_contradict_profile(runs(9, 2.0), kMeasured, kMeasured + 60)) << "too young";
  EXPECT_FALSE(runs_contradict_profile(runs(9, 2.0), kMeasured + 100, kLater)) << "earlier runs";
  std::vector<RunRecord> better = runs(20, 2.0);
  for (const RunRecord& one : runs(20, 1.0)) better.push_back(one);
  EXPECT_FALSE(runs_contradict_profile(better, kMeasured, kLater)) << "only the newest count";
}

// Runs of one lane, the disk's, that take this many times longer for a byte than planned.
std::vector<RunRecord> runs_of_disk(const std::vector<double>& times, int64_t first = 1) {
  std::vector<RunRecord> runs;
  for (const double takes : times) {
    RunRecord one = record(first + std::ssize(runs));
    one.planned = {.seconds = 4, .generated_tokens = 10, .lanes = {{"disk read", 2, 1000}}};
    // Fewer bytes than planned say nothing about the disk.
    one.measured = {.seconds = 4, .generated_tokens = 10, .lanes = {{"disk read", takes, 500}}};
    runs.push_back(one);
  }
  return runs;
}

TEST(ProfileAge, ALaneThatIsOffTwiceContradictsIt) {
  constexpr std::time_t kMeasured = 1'900'000'000;
  constexpr std::time_t kSoon = kMeasured + 60;
  const auto contradict = [&](const std::vector<double>& times) {
    return runs_contradict_profile(runs_of_disk(times), kMeasured, kSoon);
  };
  EXPECT_TRUE(contradict({1.3, 1.3}));
  EXPECT_TRUE(contradict({0.7, 0.7}));
  EXPECT_TRUE(contradict({1.0, 1.0, 1.3, 2.0}));
  EXPECT_FALSE(contradict({1.3}));
  EXPECT_FALSE(contradict({1.3, 1.0})) << "not in a row";
  EXPECT_FALSE(contradict({1.3, 0.7})) << "not the same way";
  EXPECT_FALSE(contradict({1.2, 1.2})) << "not by a quarter";
  std::vector<RunRecord> idle = runs_of_disk({1.5, 1.5});
  for (RunRecord& run : idle) run.planned.seconds = 30;
  EXPECT_FALSE(runs_contradict_profile(idle, kMeasured, kSoon)) << "a lane with little to do";
  std::vector<RunRecord> brief = runs_of_disk({1.5, 1.5});
  for (RunRecord& run : brief) run.measured.seconds = 0.9;
  EXPECT_FALSE(runs_contradict_profile(brief, kMeasured, kSoon)) << "too short a run";
}

TEST(ProfileAge, WhereMeasuringHasNotHelpedItWaits) {
  constexpr std::time_t kMeasured = 1'900'000'002;  // after the first two runs
  const auto contradict = [&](const std::vector<double>& times, std::time_t later) {
    return runs_contradict_profile(runs_of_disk(times), kMeasured, kMeasured + later);
  };
  EXPECT_FALSE(contradict({1.5, 1.5, 1.5, 1.5}, 60));
  EXPECT_TRUE(contradict({1.5, 1.5, 1.5, 1.5}, 3600));
  EXPECT_TRUE(contradict({1.0, 1.0, 1.5, 1.5}, 60));
}

TEST(MachineName, IsOfARecord) {
  const RunRecord run = record(1, machine_name(12));
  EXPECT_NE(run.machine.find(", 12 threads"), std::string::npos);
  EXPECT_EQ(read_run_record(write_run_record(run)), run);
}

}  // namespace
}  // namespace klotski
