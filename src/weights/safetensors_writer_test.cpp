#include "weights/safetensors_writer.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <random>
#include <thread>

#include "base/file.h"
#include "weights/safetensors.h"
#include "weights/testing.h"

namespace klotski {
namespace {

using namespace testing_files;

std::vector<std::byte> random_bytes(std::mt19937& random, size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

template <typename Action>
ErrorKind kind_of(Action action) {
  try {
    action();
  } catch (const Error& error) {
    return error.kind();
  }
  ADD_FAILURE() << "expected an error";
  return ErrorKind::usage;
}

TEST(SafetensorsWriter, TheReaderFindsWhatWasWritten) {
  std::mt19937 random(7);
  for (int trial = 0; trial < 30; ++trial) {
    ScratchFolder folder;
    const auto path = folder.path() / "model.safetensors";
    std::vector<NewTensor> tensors;
    std::vector<std::vector<std::byte>> data;
    for (int i = 0; i < trial; ++i) {
      const DType dtype = i % 2 == 0 ? DType::BF16 : DType::F32;
      tensors.push_back(
          {fmt::format("layer.{}\"\\weight", i),
           dtype,
           {static_cast<int64_t>(random() % 9), static_cast<int64_t>(random() % 700)}});
      uint64_t bytes = 0;
      ASSERT_TRUE(byte_count(tensors.back().shape, dtype, &bytes));
      data.push_back(random_bytes(random, bytes));
    }
    SafetensorsWriter writer(path, tensors);
    for (size_t i = tensors.size(); i-- > 0;) {  // backwards and in two pieces
      const std::span<const std::byte> bytes(data[i]);
      writer.write(i, bytes.size() / 3, bytes.subspan(bytes.size() / 3));
      writer.write(i, 0, bytes.first(bytes.size() / 3));
    }
    writer.finish();

    const File file(path);
    const std::vector<TensorEntry> entries = read_safetensors_header(file);
    ASSERT_EQ(entries.size(), tensors.size());
    for (size_t i = 0; i < entries.size(); ++i) {
      EXPECT_EQ(entries[i].name, tensors[i].name);
      EXPECT_EQ(entries[i].dtype, tensors[i].dtype);
      EXPECT_EQ(entries[i].shape, tensors[i].shape);
      std::vector<std::byte> found(entries[i].bytes);
      file.read_at(entries[i].offset, found);
      EXPECT_EQ(found, data[i]);
    }
    EXPECT_EQ((file.size() - writer.data_bytes()) % kSafetensorsDataAlignment, 0u);
  }
}

TEST(SafetensorsWriter, SeveralThreadsWriteOneTensor) {
  ScratchFolder folder;
  const auto path = folder.path() / "model.safetensors";
  std::mt19937 random(1);
  const std::vector<std::byte> data = random_bytes(random, 400'000);
  SafetensorsWriter writer(path, {{"w", DType::U8, {400'000}}});
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (size_t at = t * 1000; at < data.size(); at += 4000) {
        writer.write(0, at, std::span(data).subspan(at, 1000));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  writer.finish();
  const File file(path);
  std::vector<std::byte> found(data.size());
  file.read_at(read_safetensors_header(file)[0].offset, found);
  EXPECT_EQ(found, data);
}

TEST(SafetensorsWriter, RefusesMistakes) {
  ScratchFolder folder;
  const auto path = folder.path() / "model.safetensors";
  SafetensorsWriter writer(path, {{"w", DType::F32, {10}}});
  const std::vector<std::byte> bytes(41);
  EXPECT_EQ(kind_of([&] { writer.write(0, 0, bytes); }), ErrorKind::internal);
  EXPECT_EQ(kind_of([&] { writer.write(0, 41, {}); }), ErrorKind::internal);
  EXPECT_EQ(kind_of([&] { writer.write(1, 0, {}); }), ErrorKind::internal);
  writer.write(0, 0, std::span(bytes).first(39));
  EXPECT_EQ(kind_of([&] { writer.finish(); }), ErrorKind::internal);
  EXPECT_EQ(kind_of([&] { SafetensorsWriter(path, {}); }), ErrorKind::internal);  // exists
  EXPECT_EQ(
      kind_of([&] {
        SafetensorsWriter(folder.path() / "b", {{"w", DType::U8, {1}}, {"w", DType::U8, {1}}});
      }),
      ErrorKind::internal);
}

// A limit on the size of files stands in for a full disk: the write fails where it would there.
class SmallFiles {
 public:
  explicit SmallFiles(rlim_t bytes) {
    previous_handler_ = std::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &previous_);
    const rlimit limit = {bytes, previous_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~SmallFiles() {
    ::setrlimit(RLIMIT_FSIZE, &previous_);
    std::signal(SIGXFSZ, previous_handler_);
  }

 private:
  rlimit previous_{};
  void (*previous_handler_)(int);
};

TEST(SafetensorsWriter, AFullDiskIsACleanError) {
  ScratchFolder folder;
  const std::vector<std::byte> data(100'000);
  const SmallFiles limit(50'000);
  SafetensorsWriter writer(folder.path() / "model.safetensors", {{"w", DType::U8, {100'000}}});
  EXPECT_EQ(kind_of([&] { writer.write(0, 0, data); }), ErrorKind::does_not_fit);
  EXPECT_EQ(kind_of([&] { writer.finish(); }), ErrorKind::internal);
}

}  // namespace
}  // namespace klotski
