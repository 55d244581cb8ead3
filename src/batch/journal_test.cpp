#include "batch/journal.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <vector>

#include "base/file.h"
#include "base/testing.h"

namespace klotski {
namespace {

JournalReader reader_of(const std::string& bytes) {
  return {bytes.size(), [&bytes](uint64_t offset, std::span<char> out) {
            ASSERT_LE(offset + out.size(), bytes.size());
            bytes.copy(out.data(), out.size(), offset);
          }};
}

// The rows of a journal; nothing where it has no head.
std::optional<std::vector<JournalRow>> rows_in(const std::string& bytes) {
  JournalReader reader = reader_of(bytes);
  if (!reader.head()) return std::nullopt;
  std::vector<JournalRow> rows;
  for (JournalRow row; reader.next(row);) rows.push_back(row);
  EXPECT_LE(reader.whole_bytes(), bytes.size());
  return rows;
}

const std::vector<JournalRow> kRows = {
    {.row = 3, .failed = false, .text = "three\n"},
    {.row = 0, .failed = true, .text = std::string("nought\0\n", 8)},
    {.row = 1, .failed = false, .text = std::string(600000, 'x') + "\n"},
    {.row = 2, .failed = false, .text = "2\n"}};

std::string small_journal() {
  std::string bytes = head_record(R"({"job":1})");
  for (size_t i : {0u, 1u, 3u}) bytes += row_record(kRows[i]);
  return bytes;
}

TEST(JournalRecordsTest, RecordsComeBack) {
  std::string bytes = head_record("head");
  for (const JournalRow& row : kRows) bytes += row_record(row);
  JournalReader reader = reader_of(bytes);
  EXPECT_EQ(reader.head(), "head");
  EXPECT_EQ(rows_in(bytes), kRows);
}

TEST(JournalRecordsTest, EveryTruncationKeepsTheWholeRecordsBeforeIt) {
  const std::string bytes = small_journal();
  const size_t head = head_record(R"({"job":1})").size();
  std::vector<size_t> ends = {head};
  for (size_t i : {0u, 1u, 3u}) ends.push_back(ends.back() + row_record(kRows[i]).size());
  for (size_t size = 0; size <= bytes.size(); ++size) {
    const std::string cut = bytes.substr(0, size);
    const auto rows = rows_in(cut);
    EXPECT_EQ(rows.has_value(), size >= head);
    if (!rows) {
      EXPECT_TRUE(reader_of(cut).torn_at_birth()) << size;
      continue;
    }
    const auto whole = std::upper_bound(ends.begin(), ends.end(), size) - ends.begin() - 1;
    EXPECT_EQ(static_cast<int64_t>(rows->size()), whole);
    // A tail of zeros, as a power failure may leave, is no record either.
    EXPECT_EQ(rows_in(cut + std::string(40, '\0')), rows);
  }
}

TEST(JournalRecordsTest, NoFlippedBitGivesAnotherRow) {
  const std::string bytes = small_journal();
  const std::vector<JournalRow> rows = *rows_in(bytes);
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    std::string other = bytes;
    other[bit / 8] = static_cast<char>(other[bit / 8] ^ (1 << (bit % 8)));
    const auto found = rows_in(other);
    if (!found) continue;
    ASSERT_LT(found->size(), rows.size()) << bit;
    EXPECT_TRUE(std::equal(found->begin(), found->end(), rows.begin())) << bit;
  }
}

TEST(JournalRecordsTest, ForeignBytesAreNoJournal) {
  for (const std::string& bytes :
       {std::string("hello"), std::string(1 << 20, 'x'), "klotski journal?" + small_journal(),
        small_journal().substr(1)}) {
    EXPECT_FALSE(rows_in(bytes).has_value());
    EXPECT_FALSE(reader_of(bytes).torn_at_birth());
  }
  EXPECT_TRUE(reader_of(std::string()).torn_at_birth());
}

class JournalTest : public testing::Test {
 protected:
  JournalTest() { std::filesystem::create_directories(folder_); }
  ~JournalTest() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path folder_ =
      std::filesystem::path(testing::TempDir()) / (std::to_string(::getpid()) + "_journal_test");
  std::filesystem::path path_ = folder_ / "out.journal";
};

TEST_F(JournalTest, CommittedRowsAreThereAgain) {
  {
    Journal journal(path_);
    EXPECT_FALSE(journal.head().has_value());
    journal.begin("head");
    EXPECT_EQ(journal.append(kRows[0]), head_record("head").size());
    journal.commit();
    const uint64_t offset = journal.append(kRows[2]);
    journal.commit();
    EXPECT_EQ(journal.read(offset), kRows[2]);
    journal.append(kRows[1]);  // never committed
    EXPECT_NE(refusal([&] { Journal second(path_); }).find("another process"), std::string::npos);
  }
  std::ofstream(path_, std::ios::app) << "torn";
  Journal journal(path_);
  EXPECT_EQ(journal.head(), "head");
  std::vector<JournalRow> rows;
  EXPECT_EQ(journal.replay([&](const JournalRow& row, uint64_t) {
    rows.push_back(row);
    return rows.size() < 2;
  }),
            4u + row_record(kRows[2]).size());
  EXPECT_EQ(rows, (std::vector<JournalRow>{kRows[0], kRows[2]}));
  EXPECT_EQ(std::filesystem::file_size(path_),
            head_record("head").size() + row_record(kRows[0]).size());
  journal.remove();
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(JournalTest, AJournalThatWasNotBegunLeavesNothing) {
  { Journal journal(path_); }
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(JournalTest, ForeignFilesAreRefusedAndKept) {
  std::ofstream(path_) << "a shopping list";
  EXPECT_NE(refusal([&] { Journal journal(path_); }).find("remove it"), std::string::npos);
  EXPECT_EQ(read_text_file(path_, 100), "a shopping list");
  EXPECT_NE(refusal([&] { Journal journal(folder_); }), "");
}

}  // namespace
}  // namespace klotski
