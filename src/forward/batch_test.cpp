#include "forward/batch.h"

#include <gtest/gtest.h>

namespace klotski {
namespace {

TEST(Batch, RowsFollowOneAnotherWithoutPadding) {
  Batch batch;
  batch.append(0, std::vector<TokenId>{7, 8, 9}, 3, LogitsOf::last_token);
  batch.append(5, std::vector<TokenId>{4}, 6, LogitsOf::none);
  batch.append(2, std::vector<TokenId>{1, 2}, 9, LogitsOf::every_token);
  EXPECT_EQ(batch.tokens, (std::vector<TokenId>{7, 8, 9, 4, 1, 2}));
  EXPECT_EQ(batch.positions, (std::vector<int32_t>{0, 1, 2, 5, 2, 3}));
  EXPECT_EQ(batch.logit_rows(), (std::vector<int32_t>{2, 4, 5}));
  EXPECT_EQ(batch.sequences[2].first_row, 4);
}

}  // namespace
}  // namespace klotski
