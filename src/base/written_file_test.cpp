#include "base/written_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <optional>

#include "base/content_hash.h"
#include "base/file.h"
#include "base/testing.h"
#include "base/write_calls.h"

namespace klotski {
namespace {

class WrittenFileTest : public testing::Test {
 protected:
  WrittenFileTest() { std::filesystem::create_directories(folder_); }
  ~WrittenFileTest() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path folder_ = std::filesystem::path(testing::TempDir()) /
                                  (std::to_string(::getpid()) + "_written_file_test");
  std::filesystem::path path_ = folder_ / "file";
};

// Writes at most one byte a call, is interrupted before every second one, then refuses.
class SlowWrites : public WriteCalls {
 public:
  ssize_t pwrite(int descriptor, const void* bytes, size_t size, off_t offset) override {
    errno = calls % 2 == 0 ? EINTR : error;
    if (calls++ % 2 == 0 || left-- == 0) return -1;
    return WriteCalls::pwrite(descriptor, bytes, std::min<size_t>(size, 1), offset);
  }
  int fsync(int) override {
    errno = error;
    return -1;
  }
  int calls = 0;
  int left = 4;
  int error = ENOSPC;
};

TEST_F(WrittenFileTest, WritesReadsAndShortens) {
  WrittenFile file(path_, O_RDWR | O_CREAT | O_EXCL);
  file.write_at(0, "hello");
  file.write_at(5, " world");
  file.sync();
  sync_folder_of(path_);
  std::string text(5, ' ');
  file.read_at(6, text);
  EXPECT_EQ(text, "world");
  file.truncate(5);
  EXPECT_EQ(file.size(), 5u);
  EXPECT_TRUE(file.regular());
  EXPECT_NE(refusal([&] { file.read_at(3, text); }).find("ends at byte 5"), std::string::npos);
  EXPECT_NE(
      refusal([&] { WrittenFile(path_, O_RDWR | O_CREAT | O_EXCL); }).find("cannot be opened"),
      std::string::npos);
}

TEST_F(WrittenFileTest, ShortAndInterruptedWritesGoOnAndAFullDiskIsTold) {
  WrittenFile file(path_, O_RDWR | O_CREAT);
  SlowWrites slow;
  const ScopedWriteCalls guard(slow);
  file.write_at(0, "four");
  EXPECT_EQ(read_text_file(path_, 10), "four");
  EXPECT_THROW(file.write_at(4, "more"), DiskFull);
  EXPECT_THROW(file.sync(), DiskFull);
  slow.error = EIO;
  EXPECT_NE(refusal([&] { file.sync(); }).find("Input/output error"), std::string::npos);
}

TEST_F(WrittenFileTest, ALockHoldsUntilTheFileIsClosed) {
  auto first = std::make_optional<WrittenFile>(path_, O_RDWR | O_CREAT);
  EXPECT_TRUE(first->lock());
  WrittenFile second(path_, O_RDWR);
  EXPECT_FALSE(second.lock());
  first.reset();
  EXPECT_TRUE(second.lock());
  EXPECT_TRUE(second.named());
  remove_file(path_);
  remove_file(path_);
  EXPECT_FALSE(second.named());
}

TEST_F(WrittenFileTest, ATemporaryFileHasNoName) {
  WrittenFile file = WrittenFile::temporary();
  file.write_at(0, "x");
  EXPECT_EQ(file.size(), 1u);
  EXPECT_FALSE(file.named());
}

TEST(ContentHashTest, EveryByteAndEveryBorderCounts) {
  const auto hash = [](std::initializer_list<std::string_view> texts) {
    ContentHash result;
    for (const std::string_view text : texts) result.add(text);
    return result.text();
  };
  const std::string text = "a text that is longer than two words of eight bytes";
  for (size_t i = 0; i < text.size(); ++i) {
    std::string other = text;
    other[i] = static_cast<char>(other[i] ^ 1);
    EXPECT_NE(hash({text}), hash({other}));
    EXPECT_NE(hash({text}), hash({text.substr(0, i), text.substr(i)}));
  }
  EXPECT_EQ(hash({text}), hash({text}));
  EXPECT_EQ(hash({"a", "b"}).size(), 32u);
}

}  // namespace
}  // namespace klotski
