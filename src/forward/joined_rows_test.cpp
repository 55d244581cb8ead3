#include "forward/joined_rows.h"

#include <gtest/gtest.h>

namespace klotski {
namespace {

TEST(JoinedRows, JoinsRowsThatFollowEachOtherOnBothSides) {
  std::vector<float> outputs(100), inputs(100);
  const auto sequence = [&](int64_t row, int64_t count, int64_t input_row) {
    AttendingSequence one;
    one.output = {outputs.data() + row * 3, count, 3};
    one.inputs.parts = {Rows{}, Rows{inputs.data() + input_row * 2, count, 2}};
    return one;
  };
  // The last sequence's inputs lie apart.
  const std::vector<AttendingSequence> sequences = {sequence(0, 2, 1), sequence(2, 1, 3),
                                                    sequence(3, 4, 4), sequence(7, 1, 20)};
  const std::vector<JoinedRows> joined = joined_rows(sequences, 1);
  ASSERT_EQ(joined.size(), 2u);
  EXPECT_EQ(joined[0].output.data, outputs.data());
  EXPECT_EQ(joined[0].output.count, 7);
  EXPECT_EQ(joined[0].input.data, inputs.data() + 2);
  EXPECT_EQ(joined[0].input.count, 7);
  EXPECT_EQ(joined[1].output.count, 1);
  EXPECT_EQ(joined[1].input.data, inputs.data() + 40);
  EXPECT_TRUE(joined_rows({}, 1).empty());
}

}  // namespace
}  // namespace klotski
