// A job whose process dies, whose disk loses what was not flushed, or whose k-th call fails, for
// every k: the same job run again must end with the results of an undisturbed one.

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cerrno>
#include <map>
#include <set>

#include "base/error.h"
#include "base/write_calls.h"
#include "batch/testing_job.h"

namespace klotski {
namespace {

struct Killed {};

enum class Fault {
  killed,      // the process is gone; a write may have been done in part
  power_lost,  // and bytes that were not flushed are lost, or zeros
  failed,      // the call fails with EIO
  full,        // the call fails once for want of space
};

// Counts the calls and lets one of them go wrong. Nothing is really flushed, to be fast.
class FaultyCalls : public WriteCalls {
 public:
  FaultyCalls(Fault fault, int at, unsigned seed) : fault_(fault), at_(at), random_(seed) {}

  bool struck() const { return calls_ > at_; }

  int open(const char* path, int flags, mode_t mode) override {
    return refused(false) ? -1 : WriteCalls::open(path, flags, mode);
  }
  ssize_t pwrite(int descriptor, const void* bytes, size_t size, off_t offset) override {
    const bool partly = calls_ == at_ && !dead_ && random_() % 2 == 0;
    if (partly) WriteCalls::pwrite(descriptor, bytes, random_() % size, offset);
    flushed_.emplace(descriptor, offset);
    return refused(true) ? -1 : WriteCalls::pwrite(descriptor, bytes, size, offset);
  }
  int fsync(int descriptor) override {
    if (refused(true)) return -1;
    flushed_.erase(descriptor);
    return 0;
  }
  int ftruncate(int descriptor, off_t size) override {
    return refused(false) ? -1 : WriteCalls::ftruncate(descriptor, size);
  }
  int rename(const char* from, const char* to) override {
    return refused(false) ? -1 : WriteCalls::rename(from, to);
  }
  int unlink(const char* path) override { return refused(false) ? -1 : WriteCalls::unlink(path); }

 private:
  bool refused(bool takes_space) {
    errno = EIO;
    if (dead_) return true;
    if (calls_++ != at_) return false;
    if (fault_ == Fault::failed) return true;
    if (fault_ == Fault::full) {
      errno = ENOSPC;
      return takes_space;
    }
    dead_ = true;
    if (fault_ == Fault::power_lost) lose_unflushed();
    throw Killed();
  }

  void lose_unflushed() {
    for (const auto& [descriptor, begin] : flushed_) {
      struct stat status {};
      if (::fstat(descriptor, &status) != 0 || status.st_size <= begin) continue;
      const auto kept =
          begin + static_cast<off_t>(random_() % static_cast<uint64_t>(status.st_size - begin + 1));
      const auto zeros = static_cast<off_t>(random_() % 3) * (status.st_size - kept) / 2;
      ASSERT_EQ(WriteCalls::ftruncate(descriptor, kept), 0);
      ASSERT_EQ(WriteCalls::ftruncate(descriptor, kept + zeros), 0);
    }
  }

  Fault fault_;
  int at_;
  int calls_ = 0;
  bool dead_ = false;
  std::mt19937 random_;
  std::map<int, off_t> flushed_;  // by descriptor: bytes before the first that is not flushed
};

struct Kind {
  bool ordered;
  bool errors;
  bool overwrite;
};

class JobCrashTest : public testing::TestWithParam<Fault> {
 protected:
  JobFolder folder_{fmt::format("job_crash_test_{}", static_cast<int>(GetParam()))};
  PlainJob job_;

  void begin(const Kind& kind) {
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path)) {
      std::filesystem::remove(entry.path());
    }
    job_.outputs = {.output = folder_.path / "out",
                    .errors = kind.errors ? folder_.path / "errors" : std::filesystem::path(),
                    .overwrite = kind.overwrite,
                    .ordered = kind.ordered};
    if (kind.overwrite) std::ofstream(job_.outputs.output) << "old";
  }

  // Runs the job until its k-th call, which goes wrong; false where it has fewer.
  bool run_until(int k, unsigned seed) {
    FaultyCalls calls(GetParam(), k, seed);
    const ScopedWriteCalls guard(calls);
    int waited = 0;
    try {
      job_.run([&](const std::string& problem) {
        EXPECT_NE(problem.find("No space left"), std::string::npos);
        return ++waited < 10;
      });
      if (GetParam() != Fault::full) {
        EXPECT_TRUE(!calls.struck() || GetParam() == Fault::failed) << k;
      }
    } catch (const Killed&) {
    } catch (const Error&) {
      EXPECT_EQ(GetParam(), Fault::failed) << k;
    }
    return calls.struck();
  }

  // An undisturbed run, unless the outputs are complete already.
  void complete() {
    const bool journal = std::filesystem::exists(journal_path(job_.outputs.output));
    if (!journal && !job_.outputs.overwrite && std::filesystem::exists(job_.outputs.output)) return;
    FaultyCalls calls(Fault::failed, -1, 1);
    const ScopedWriteCalls guard(calls);
    job_.run();
  }

  void check_complete() {
    std::set<std::filesystem::path> expected = {job_.outputs.output};
    if (!job_.outputs.errors.empty()) expected.insert(job_.outputs.errors);
    std::set<std::filesystem::path> found;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path)) {
      found.insert(entry.path());
    }
    ASSERT_EQ(found, expected);
    for (const auto& path : expected) {
      auto lines = lines_of(path);
      if (!job_.outputs.ordered) std::sort(lines.begin(), lines.end());
      auto wanted = job_.lines(path == job_.outputs.errors);
      if (!job_.outputs.ordered) std::sort(wanted.begin(), wanted.end());
      ASSERT_EQ(lines, wanted) << path;
    }
  }

  // Until the new output is complete the old one is there, whole.
  void check_old_or_new() {
    if (!job_.outputs.overwrite) return;
    const auto lines = lines_of(job_.outputs.output);
    EXPECT_TRUE(lines == std::vector<std::string>{"old"} ||
                lines.size() == job_.lines(false).size());
  }
};

TEST_P(JobCrashTest, EveryCallMayGoWrongOnceOrTwice) {
  for (int kind = 0; kind < 8; ++kind) {
    bool struck = true;
    for (int k = 0; struck; ++k) {
      ASSERT_LT(k, 200);
      for (unsigned seed = 0; seed < 3; ++seed) {
        begin(
            {.ordered = (kind & 1) != 0, .errors = (kind & 2) != 0, .overwrite = (kind & 4) != 0});
        struck = run_until(k, seed);
        check_old_or_new();
        // The run that goes on may be disturbed as well.
        const bool whole = !std::filesystem::exists(journal_path(job_.outputs.output));
        if (seed > 0 && !whole) run_until(static_cast<int>((k * 7 + seed * 5) % 23), seed);
        check_old_or_new();
        complete();
        check_complete();
        ASSERT_FALSE(HasFatalFailure()) << "kind " << kind << ", call " << k << ", seed " << seed;
      }
    }
  }
}

std::string name_of_fault(const testing::TestParamInfo<Fault>& info) {
  static const std::vector<std::string> names = {"Killed", "PowerLost", "Failed", "Full"};
  return names[static_cast<size_t>(info.param)];
}

INSTANTIATE_TEST_SUITE_P(Faults, JobCrashTest,
                         testing::Values(Fault::killed, Fault::power_lost, Fault::failed,
                                         Fault::full),
                         name_of_fault);

// A disk that stays full ends the job where nobody wants to wait, and it goes on later.
TEST(JobFullDiskTest, GivingUpKeepsWhatWasDone) {
  JobFolder folder("job_full_disk_test");
  const PlainJob job{.outputs = {.output = folder.path / "out", .ordered = true}};
  int given_up = 0;
  for (int k = 0; k < 30; ++k) {
    if (!std::filesystem::exists(journal_path(job.outputs.output))) {
      std::filesystem::remove(job.outputs.output);  // the last job is complete
    }
    FaultyCalls calls(Fault::full, k, 1);
    const ScopedWriteCalls guard(calls);
    try {
      job.run([](const std::string&) { return false; });
      EXPECT_EQ(lines_of(job.outputs.output), job.lines(false));
    } catch (const DiskFull&) {
      ++given_up;
    }
  }
  EXPECT_GT(given_up, 5);
}

}  // namespace
}  // namespace klotski
