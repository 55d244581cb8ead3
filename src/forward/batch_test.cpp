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

TEST(Batch, TheDecoderCountsItsPositionsFromZero) {
  Batch encoding;
  encoding.append(0, std::vector<TokenId>{7, 8, 9}, 4, LogitsOf::none, 3);
  EXPECT_TRUE(encoding.encodes());
  EXPECT_EQ(encoding.positions, (std::vector<int32_t>{0, 1, 2}));
  Batch decoding;
  decoding.append(3, std::vector<TokenId>{2, 4}, 5, LogitsOf::last_token, 3);
  EXPECT_FALSE(decoding.encodes());
  EXPECT_EQ(decoding.positions, (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(decoding.sequences[0].past, 3);
}

}  // namespace
}  // namespace klotski
