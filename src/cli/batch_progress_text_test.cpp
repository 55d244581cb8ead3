#include "cli/batch_progress_text.h"

#include <gtest/gtest.h>

#include "base/json.h"

namespace klotski {
namespace {

ProgressFigures figures() {
  return {.rows = 3000,
          .rows_done = 12,
          .rows_failed = 2,
          .run = {.tokens_done = 123456,
                  .tokens_expected = 9876543,
                  .share = 0.9999,
                  .seconds_left = 4000.0},
          .seconds = 60.0,
          .generated_per_second = 123.4,
          .prompt_per_second = 5000.0,
          .experts_found = 0.5};
}

TEST(BatchProgressTextTest, TheLineFitsEveryWidth) {
  for (size_t width = 0; width < 200; ++width) {
    EXPECT_LE(progress_line(figures(), width).size(), width);
  }
  EXPECT_EQ(progress_line(figures(), 39), "batch  99 %, 1 h 6 min left, 2 failed");
  EXPECT_EQ(progress_line(figures(), 79),
            "batch  99 %, 1 h 6 min left, 12 of 3000 rows, 123.4 tokens/s, 2 failed");
  EXPECT_EQ(progress_line(figures(), 300),
            "batch  99 %, 1 h 6 min left, 12 of 3000 rows, 123.4 tokens/s, 123456 of about 9876543 "
            "tokens, 2 failed, 5000.0 prompt tokens/s, 50.0 % of experts found");
}

TEST(BatchProgressTextTest, TimesHaveTwoUnits) {
  EXPECT_EQ(time_in_words(-1.0), "0 s");
  EXPECT_EQ(time_in_words(59.4), "59 s");
  EXPECT_EQ(time_in_words(59.6), "1 min 0 s");
  EXPECT_EQ(time_in_words(3600.0 * 25), "1 d 1 h");
  EXPECT_EQ(time_in_words(1e300), "11574 d 1 h");
}

TEST(BatchProgressTextTest, ProgramsReadJson) {
  const std::string line = progress_json(figures(), "progress");
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  const Json document = Json::parse(line);
  EXPECT_EQ(document["event"], "progress");
  EXPECT_EQ(document["rows_done"], 12);
  EXPECT_EQ(document["share"], 1.0);
  EXPECT_EQ(document["seconds_left"], 4000.0);
  ProgressFigures unknown = figures();
  unknown.run.seconds_left.reset();
  EXPECT_TRUE(Json::parse(progress_json(unknown, "done"))["seconds_left"].is_null());
}

}  // namespace
}  // namespace klotski
