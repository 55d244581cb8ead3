#include "batch/job_results.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "base/testing.h"
#include "batch/testing_job.h"

namespace klotski {
namespace {

class JobResultsTest : public testing::Test {
 protected:
  JobFolder folder_{"job_results_test"};
  std::filesystem::path output_ = folder_.path / "out";
  std::filesystem::path errors_ = folder_.path / "errors";

  std::string content() const { return read_text_file(output_, 1 << 20); }
  void write(const std::string& text) const { std::ofstream(output_) << text; }
};

TEST_F(JobResultsTest, OrderedAndUnorderedInOneFileOrTwo) {
  for (const bool ordered : {false, true}) {
    for (const auto& errors : {std::filesystem::path(), errors_}) {
      const PlainJob job{.outputs = {.output = output_, .errors = errors, .ordered = ordered}};
      job.run();
      for (const bool of_errors : {false, true}) {
        if (of_errors && errors.empty()) continue;
        auto found = lines_of(of_errors ? errors : output_);
        if (!ordered) {
          EXPECT_TRUE(of_errors || found != job.lines(false));
          auto expected = job.lines(of_errors);
          std::sort(found.begin(), found.end());
          std::sort(expected.begin(), expected.end());
          EXPECT_EQ(found, expected);
        } else {
          EXPECT_EQ(found, job.lines(of_errors));
        }
      }
      EXPECT_FALSE(std::filesystem::exists(journal_path(output_)));
      std::filesystem::remove(output_);
      std::filesystem::remove(errors_);
    }
  }
}

TEST_F(JobResultsTest, ResultsAppearWhenTheyAreCommitted) {
  JobResults results({.output = output_, .ordered = true}, -1, {});
  results.begin(OrderedJson::object(), 3, 5);
  EXPECT_EQ(results.created(), 5);
  results.add({.row = 1, .failed = true, .text = "b\n"});
  results.commit();
  EXPECT_EQ(content(), "");
  results.add({.row = 0, .failed = false, .text = "a\n"});
  EXPECT_EQ(content(), "");
  results.commit_if_due();  // too soon
  EXPECT_EQ(content(), "");
  results.commit();
  EXPECT_EQ(content(), "a\nb\n");
  EXPECT_EQ(results.rows_done(), 2);
  EXPECT_EQ(results.rows_failed(), 1);
  EXPECT_EQ(results.journal(), journal_path(output_));
}

TEST_F(JobResultsTest, GoesOnWithTheTimeOfTheFirstRunAndRepairsTheOutput) {
  const OrderedJson identity = {{"input", "i"}};
  const auto begun = [&](int64_t now) {
    auto results =
        std::make_unique<JobResults>(JobOutputs{.output = output_}, -1, JobResults::WaitForSpace());
    results->begin(identity, 3, now);
    return results;
  };
  {
    auto results = begun(1000);
    EXPECT_FALSE(results->resumed());
    results->add({.row = 2, .failed = false, .text = "two\n"});
    results->commit();
    results->add({.row = 0, .failed = false, .text = "lost\n"});
  }
  for (const std::string damaged : {"two\n", "tw", "", "two\nby hand\n", "TWO\n"}) {
    write(damaged);
    auto results = begun(2000);
    EXPECT_TRUE(results->resumed());
    EXPECT_EQ(results->created(), 1000);
    EXPECT_TRUE(results->done(2));
    EXPECT_FALSE(results->done(0));
    EXPECT_EQ(content(), "two\n");
  }
  std::filesystem::remove(output_);
  begun(2000);
  EXPECT_EQ(content(), "two\n");
  // A row that the input does not have, and one for the second time, end the journal.
  std::ofstream(journal_path(output_), std::ios::app | std::ios::binary)
      << row_record({.row = 2, .failed = false, .text = "again\n"});
  EXPECT_GT(begun(2000)->bytes_lost(), 0u);
  EXPECT_EQ(begun(2000)->bytes_lost(), 0u);
}

TEST_F(JobResultsTest, AJobWithoutAResultLeavesNothing) {
  for (const bool overwrite : {false, true}) {
    if (overwrite) write("old");
    {
      JobResults results({.output = output_, .errors = errors_, .overwrite = overwrite}, -1, {});
      results.begin(OrderedJson::object(), 3, 1);
      results.add({.row = 1, .failed = false, .text = "not committed\n"});
    }
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_.path),
                            std::filesystem::directory_iterator()),
              overwrite ? 1 : 0);
  }
  EXPECT_EQ(content(), "old");
}

TEST_F(JobResultsTest, AnotherJobIsRefusedAndNothingIsTouched) {
  const PlainJob job{.outputs = {.output = output_}};
  {
    JobResults results(job.outputs, -1, {});
    results.begin({{"input", "i"}, {"--ordered", false}}, 3, 1);
    results.add({.row = 1, .failed = false, .text = "one\n"});
    results.commit();
  }
  const auto refused = [&](const OrderedJson& identity) {
    return refusal([&] {
      JobResults results(job.outputs, -1, {});
      results.begin(identity, 3, 1);
    });
  };
  const std::string message = refused({{"input", "j"}, {"--ordered", false}});
  EXPECT_NE(message.find("another input: expected 'i', found 'j'"), std::string::npos) << message;
  EXPECT_NE(message.find("remove"), std::string::npos);
  EXPECT_NE(refused({{"input", "i"}, {"--ordered", true}}).find("--ordered"), std::string::npos);
  EXPECT_EQ(refused({{"input", "i"}, {"--ordered", false}}), "");
  EXPECT_EQ(content(), "one\n");
}

TEST_F(JobResultsTest, FilesThatAreNotOursAreKept) {
  write("precious");
  const auto refused = [&](const JobOutputs& outputs, int input = -1) {
    return refusal([&] { JobResults results(outputs, input, {}); });
  };
  EXPECT_NE(refused({.output = output_}).find("--overwrite"), std::string::npos);
  EXPECT_NE(refused({.output = folder_.path / "new", .errors = output_}).find("--overwrite"),
            std::string::npos);
  const File input(output_);
  EXPECT_NE(
      refused({.output = output_, .overwrite = true}, input.descriptor()).find("is the input"),
      std::string::npos);
  EXPECT_NE(refused({.output = folder_.path}).find("found a folder"), std::string::npos);
  EXPECT_NE(refused({.output = errors_, .errors = errors_}).find("is the output"),
            std::string::npos);
  EXPECT_EQ(content(), "precious");
  EXPECT_FALSE(std::filesystem::exists(journal_path(output_)));
  std::ofstream(beside(output_)) << "mine";
  EXPECT_NE(refused({.output = output_, .overwrite = true}).find("in the way"), std::string::npos);
}

TEST_F(JobResultsTest, TwoProcessesOnOneOutputAreRefused) {
  JobResults first({.output = output_}, -1, {});
  first.begin(OrderedJson::object(), 1, 1);
  EXPECT_NE(
      refusal([&] { JobResults second({.output = output_}, -1, {}); }).find("another process"),
      std::string::npos);
}

TEST_F(JobResultsTest, DevicesTakeResultsWithoutAJournal) {
  PlainJob job{.outputs = {.output = "/dev/null", .errors = errors_, .ordered = true}};
  job.run();
  EXPECT_EQ(lines_of(errors_), job.lines(true));
  EXPECT_FALSE(std::filesystem::exists("/dev/null.journal"));
}

}  // namespace
}  // namespace klotski
