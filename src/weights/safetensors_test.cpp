#include "weights/safetensors.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <random>

#include "base/bytes.h"
#include "weights/testing.h"

namespace klotski {
namespace {

using testing_files::contains;
using testing_files::error_of;
using testing_files::safetensors_text;
using testing_files::ScratchFolder;
using testing_files::write_file;

std::vector<TensorEntry> parse(const std::string& header, size_t data_bytes) {
  const std::string file = safetensors_text(header, std::string(data_bytes, 'd'));
  return parse_safetensors(std::as_bytes(std::span(file)), "f");
}

TEST(Safetensors, ReadsEntriesInHeaderOrder) {
  const std::string header = R"({"__metadata__":{"format":"pt"},)"
                             R"("b":{"dtype":"F32","shape":[2,3],"data_offsets":[4,28]},)"
                             R"("a":{"data_offsets":[0,4],"shape":[2],"dtype":"BF16"}})";
  const auto entries = parse(header, 28);
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[0].name, "b");
  EXPECT_EQ(entries[0].dtype, DType::F32);
  EXPECT_EQ(entries[0].shape, (Shape{2, 3}));
  EXPECT_EQ(entries[0].offset, 8 + header.size() + 4);
  EXPECT_EQ(entries[0].bytes, 24u);
  EXPECT_EQ(entries[1].name, "a");
  EXPECT_EQ(entries[1].offset, 8 + header.size());
}

TEST(Safetensors, AcceptsTheUnusualButValid) {
  EXPECT_TRUE(parse("{}", 0).empty());
  EXPECT_TRUE(parse(R"({"__metadata__":{}})", 0).empty());
  EXPECT_TRUE(parse(R"({"__metadata__":null})", 0).empty());
  EXPECT_EQ(
      parse(" \n\t\r{\"a\" : {\"dtype\":\"U8\", \"shape\":[ ],\"data_offsets\":[0,1]}}  \n", 1)
          .size(),
      1u);  // spaces around; rank 0
  const auto zero = parse(R"({"z":{"dtype":"F32","shape":[3,0,2],"data_offsets":[0,0]},)"
                          R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                          R"("y":{"dtype":"F32","shape":[0],"data_offsets":[1,1]}})",
                          1);
  EXPECT_EQ(zero.size(), 3u);
  EXPECT_EQ(
      parse(R"({"\u00fc\n\u0000":{"dtype":"F4","shape":[2],"data_offsets":[0,1]}})", 1)[0].name,
      std::string("\xC3\xBC\n\0", 4));
}

TEST(Safetensors, ErrorsNameTheFileTheTensorAndBothValues) {
  EXPECT_EQ(
      error_of([] { parse(R"({"x\n":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4); }),
      "f: tensor 'x\\n': expected 8 bytes for shape [2] of F32, found data_offsets [0, 4]");
  EXPECT_EQ(error_of([] { parse(R"({"x":{"dtype":"F33","shape":[],"data_offsets":[0,4]}})", 4); }),
            "f: tensor 'x': dtype: expected a type of the safetensors format such as BF16, found "
            "'F33'");
}

TEST(Safetensors, ReadsAFileOnDisk) {
  const ScratchFolder folder;
  const std::string header = R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}})";
  write_file(folder.path() / "f", safetensors_text(header, "xyz"));
  const auto entries = read_safetensors_header(File(folder.path() / "f"));
  ASSERT_EQ(entries.size(), 1u);
  EXPECT_EQ(entries[0].offset, 8 + header.size());
}

TEST(Safetensors, ShortFilesAreRefused) {
  const ScratchFolder folder;
  for (size_t bytes = 0; bytes < 8; ++bytes) {
    write_file(folder.path() / "f", std::string(bytes, '\1'));
    const File file(folder.path() / "f");
    EXPECT_TRUE(contains(error_of([&] { read_safetensors_header(file); }), "at least 8 bytes"));
  }
}

// A file of more than 4 GiB, most of it a hole.
TEST(Safetensors, SparseFileWithLargeOffsets) {
  const ScratchFolder folder;
  const auto path = folder.path() / "f";
  const uint64_t large = 5 * kGiB;
  const std::string header =
      fmt::format(R"({{"big":{{"dtype":"U8","shape":[{0}],"data_offsets":[0,{0}]}},)"
                  R"("last":{{"dtype":"U8","shape":[4],"data_offsets":[{0},{1}]}}}})",
                  large, large + 4);
  write_file(path, safetensors_text(header, ""));
  ASSERT_EQ(::truncate(path.c_str(), static_cast<off_t>(8 + header.size() + large)), 0);
  std::ofstream(path, std::ios::binary | std::ios::app) << "last";
  const File file(path);
  const auto entries = read_safetensors_header(file);
  ASSERT_EQ(entries.size(), 2u);
  std::string out(4, '\0');
  file.read_at(entries[1].offset, std::as_writable_bytes(std::span(out)));
  EXPECT_EQ(out, "last");
  EXPECT_GT(entries[1].offset, 4 * kGiB);
}

// A random header and the expected result of reading it.
struct RandomFile {
  std::vector<TensorEntry> entries;
  std::string header;
  uint64_t data_bytes = 0;
};

RandomFile random_file(std::mt19937& random) {
  RandomFile file;
  const auto below = [&](unsigned n) { return random() % n; };
  const size_t count = below(20);
  while (file.entries.size() < count) {
    TensorEntry entry;
    entry.name = fmt::format("layer.{}.{}", file.entries.size(), std::string(below(40), 'w'));
    entry.dtype = static_cast<DType>(below(kFileDTypeCount));
    const size_t rank = below(5);
    for (size_t i = 0; i < rank; ++i) entry.shape.push_back(below(6));
    if (!byte_count(entry.shape, entry.dtype, &entry.bytes)) continue;  // ends inside a byte
    entry.offset = file.data_bytes;
    file.data_bytes += entry.bytes;
    file.entries.push_back(entry);
  }
  std::shuffle(file.entries.begin(), file.entries.end(), random);
  const auto space = [&] { return std::string(below(3), " \n\t\r"[below(4)]); };
  for (const TensorEntry& entry : file.entries) {
    file.header += file.header.empty() ? space() + "{" : ",";
    std::vector<std::string> fields = {
        fmt::format("\"dtype\"{}:\"{}\"", space(), dtype_name(entry.dtype)),
        fmt::format("\"shape\":{}{}", space(), format_shape(entry.shape)),
        fmt::format("\"data_offsets\":[{},{}]", entry.offset, entry.offset + entry.bytes)};
    std::shuffle(fields.begin(), fields.end(), random);
    file.header += fmt::format("\"{}\":{{{},{}{},{}}}{}", entry.name, fields[0], space(), fields[1],
                               fields[2], space());
  }
  file.header += file.header.empty() ? "{}" : "}";
  return file;
}

TEST(Safetensors, RandomValidHeadersRoundTrip) {
  std::mt19937 random(7);
  for (int round = 0; round < 500; ++round) {
    const RandomFile file = random_file(random);
    const uint64_t begin = 8 + file.header.size();
    const auto entries = parse_safetensors_header(file.header, begin + file.data_bytes, "f");
    ASSERT_EQ(entries.size(), file.entries.size()) << file.header;
    for (size_t i = 0; i < entries.size(); ++i) {
      ASSERT_EQ(entries[i].name, file.entries[i].name);
      ASSERT_EQ(entries[i].dtype, file.entries[i].dtype);
      ASSERT_EQ(entries[i].shape, file.entries[i].shape);
      ASSERT_EQ(entries[i].bytes, file.entries[i].bytes);
      ASSERT_EQ(entries[i].offset, file.entries[i].offset + begin);
    }
  }
}

}  // namespace
}  // namespace klotski
