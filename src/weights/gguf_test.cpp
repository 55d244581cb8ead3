// GGUF files: sound ones, and bad ones in every way that the list of bad files names.

#include "weights/gguf.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "tensor/shape.h"
#include "weights/counting_new.h"
#include "weights/testing.h"
#include "weights/testing_gguf.h"

namespace klotski {
namespace {

using namespace testing_gguf;
using testing_files::contains;
using testing_files::error_of;

GgufFile parse_pieces(const std::string& file) {
  return parse_gguf(std::as_bytes(std::span(file)), "f");
}
std::string refused_gguf(const std::string& file) {
  return error_of([&] { parse_pieces(file); });
}

// A file with a value of every type and three tensors, not in the order of their data.
Pieces sound_pieces() {
  Pieces pieces;
  pieces.pairs = {text_pair("general.architecture", "llama"),
                  u32_pair("general.alignment", 32),
                  pair_of("a.u8", kU8, "\xFF"),
                  u16_pair("a.u16", 65'535),
                  pair_of("a.i16", kI16, bytes_of<int16_t>(-2)),
                  pair_of("a.i32", kI32, bytes_of<int32_t>(-3)),
                  f32_pair("a.f32", 0.5f),
                  bool_pair("a.bool", true),
                  pair_of("a.u64", kU64, bytes_of<uint64_t>(uint64_t{1} << 63)),
                  pair_of("a.f64", kF64, bytes_of<double>(-0.25)),
                  texts_pair("a.texts", {"x", "", "y z"}),
                  array_pair("a.numbers", kI16, 2, bytes_of<int16_t>(1) + bytes_of<int16_t>(-1)),
                  array_pair("a.nothing", kText, 0, "")};
  pieces.tensors = {tensor_of("second", {64, 2}, 12 - 10, 64), tensor_of("first", {3, 5}, 0, 0),
                    tensor_of("third", {8}, 30, 160)};
  pieces.data = std::string(60, 'f') + std::string(4, '\0') + std::string(72, 's') +
                std::string(24, '\0') + std::string(16, 't');
  return pieces;
}

TEST(Gguf, ReadsMetadataAndTensors) {
  const std::string bytes = sound_pieces().file();
  const GgufFile file = parse_pieces(bytes);
  EXPECT_EQ(file.version, 3u);
  EXPECT_EQ(file.metadata["general.architecture"], "llama");
  EXPECT_EQ(file.metadata["a.u8"], 255);
  EXPECT_EQ(file.metadata["a.i16"], -2);
  EXPECT_EQ(file.metadata["a.i32"], -3);
  EXPECT_EQ(file.metadata["a.f32"], 0.5);
  EXPECT_EQ(file.metadata["a.bool"], true);
  EXPECT_EQ(file.metadata["a.u64"], uint64_t{1} << 63);
  EXPECT_EQ(file.metadata["a.f64"], -0.25);
  EXPECT_EQ(file.metadata["a.texts"], Json({"x", "", "y z"}));
  EXPECT_EQ(file.metadata["a.numbers"], Json({1, -1}));
  EXPECT_EQ(file.metadata["a.nothing"], Json::array());
  ASSERT_EQ(file.tensors.size(), 3u);
  EXPECT_EQ(file.tensors[0].name, "second");
  EXPECT_EQ(file.tensors[0].dtype, DType::Q4_0);
  EXPECT_EQ(file.tensors[0].shape, (Shape{2, 64}));
  EXPECT_EQ(file.tensors[1].shape, (Shape{5, 3}));
  EXPECT_EQ(file.tensors[2].dtype, DType::BF16);
  for (const TensorEntry& entry : file.tensors) {
    EXPECT_EQ(bytes.substr(entry.offset, entry.bytes), std::string(entry.bytes, entry.name[0]));
  }
  testing_files::ScratchFolder folder;
  testing_files::write_file(folder.path() / "a.gguf", bytes);
  const GgufFile from_disk = read_gguf(File(folder.path() / "a.gguf"), "a");
  EXPECT_EQ(from_disk.metadata, file.metadata);
  EXPECT_EQ(from_disk.tensors[2].offset, file.tensors[2].offset);
}

TEST(Gguf, PaddingAtTheEndAndVersionTwoAreFine) {
  Pieces pieces = sound_pieces();
  pieces.version = 2;
  pieces.data += std::string(16, '\0');
  EXPECT_EQ(parse_pieces(pieces.file()).version, 2u);
  pieces.data += '\0';
  EXPECT_TRUE(contains(refused_gguf(pieces.file()), "found 1 bytes more"));
  EXPECT_EQ(parse_pieces(Pieces().file()).tensors.size(), 0u);  // a shard of metadata alone
}

TEST(HostileGguf, MagicAndVersions) {
  Pieces pieces = sound_pieces();
  for (const char* magic : {"GGML", "FUGG", "gguf", "\0\0\0"}) {
    pieces.magic = std::string(magic, 4);
    EXPECT_TRUE(contains(refused_gguf(pieces.file()), "begins with GGUF"));
  }
  pieces.magic = "GGUF";
  for (const uint32_t version : {0u, 1u, 4u, 99u, 0xFFFFFFFFu}) {
    pieces.version = version;
    EXPECT_TRUE(
        contains(refused_gguf(pieces.file()), "expected 2 or 3, found " + std::to_string(version)));
  }
  pieces.version = 0x03000000u;
  EXPECT_TRUE(contains(refused_gguf(pieces.file()), "found 3 in big-endian order"));
}

TEST(HostileGguf, CountsAndLengthsBeyondTheFile) {
  const uint64_t most = std::numeric_limits<uint64_t>::max();
  for (const uint64_t more : {uint64_t{1} << 20, uint64_t{1} << 32, most / 2 + 1, most - 100}) {
    Pieces pieces = sound_pieces();
    pieces.more_tensors = more;
    EXPECT_TRUE(contains(refused_gguf(pieces.file()), "the number of tensors: expected at most"));
    pieces = sound_pieces();
    pieces.more_pairs = more;
    EXPECT_TRUE(contains(refused_gguf(pieces.file()), "the number of keys: expected at most"));
    pieces = sound_pieces();
    pieces.pairs.push_back(bytes_of(more));
    EXPECT_TRUE(contains(refused_gguf(pieces.file()), "key 13 of the metadata"));
    pieces.pairs.back() = with_length("k") + bytes_of(kText) + bytes_of(more);
    EXPECT_TRUE(contains(refused_gguf(pieces.file()), "'k': expected a text of at most"));
    for (const uint32_t type : {kU8, kU32, kText, kF64}) {
      pieces.pairs.back() = array_pair("k", type, more, "");
      EXPECT_TRUE(contains(refused_gguf(pieces.file()), "'k': expected at most"));
    }
    pieces = sound_pieces();
    pieces.tensors.push_back(bytes_of(more));
    EXPECT_TRUE(contains(refused_gguf(pieces.file()), "the name of tensor 3"));
  }
}

TEST(HostileGguf, MoreKeysAndTensorsThanAModelHas) {
  Pieces pieces;
  for (uint64_t i = 0; i < kMaxGgufKeys; ++i) {
    pieces.pairs.push_back(u16_pair(std::to_string(i), 0));
  }
  EXPECT_EQ(parse_pieces(pieces.file()).metadata.size(), kMaxGgufKeys);
  pieces.pairs.push_back(u16_pair("one more", 0));
  EXPECT_TRUE(contains(refused_gguf(pieces.file()),
                       "the number of keys: expected at most 65536, found 65537"));
  pieces = {};
  pieces.more_tensors = kMaxGgufTensors + 1;
  EXPECT_TRUE(contains(refused_gguf(pieces.file()),
                       "the number of tensors: expected at most 1048576, found 1048577"));
}

TEST(HostileGguf, Values) {
  const auto with_pair = [](const std::string& pair) {
    Pieces pieces = sound_pieces();
    pieces.pairs.push_back(pair);
    return refused_gguf(pieces.file());
  };
  EXPECT_TRUE(contains(with_pair(pair_of("k", 13, "xxxx")), "expected a type of value from 0"));
  EXPECT_TRUE(contains(with_pair(pair_of("k", 0xFFFFFFFFu, "xxxx")), "found 4294967295"));
  EXPECT_TRUE(contains(with_pair(pair_of("k", kBool, "\2")), "expected a truth value"));
  EXPECT_TRUE(contains(with_pair(array_pair("k", kBool, 3, std::string("\0\1\5", 3))), "found 5"));
  EXPECT_TRUE(contains(with_pair(array_pair("k", 99, 1, "x")), "expected a type of value"));
  EXPECT_TRUE(contains(with_pair(text_pair("k", "\xC0\x80")), "'k': expected UTF-8"));
  EXPECT_TRUE(contains(with_pair(text_pair("\xFF", "x")), "expected UTF-8"));
  EXPECT_TRUE(contains(with_pair(u32_pair("a.bool", 1)), "expected it once, found it twice"));
  EXPECT_TRUE(contains(with_pair(u32_pair(std::string(65'536, 'k'), 1)), "at most 65535 bytes"));
  std::string nested;
  for (int i = 0; i < 10'000; ++i) nested += bytes_of(kArray) + bytes_of<uint64_t>(1);
  EXPECT_TRUE(contains(with_pair(pair_of("k", kArray, nested)), "found one of arrays"));
}

TEST(HostileGguf, Alignments) {
  const auto with_alignment = [](const std::string& pair) {
    Pieces pieces = sound_pieces();
    pieces.pairs[1] = pair;
    return refused_gguf(pieces.file());
  };
  for (const uint32_t bad : {0u, 1u, 3u, 31u, 131'072u, 1u << 31}) {
    EXPECT_TRUE(contains(with_alignment(u32_pair("general.alignment", bad)),
                         "expected a power of two from 8 to 65536"));
  }
  EXPECT_TRUE(contains(with_alignment(text_pair("general.alignment", "32")), "power of two"));
  EXPECT_TRUE(contains(with_alignment(f32_pair("general.alignment", 32)), "power of two"));
  Pieces pieces = sound_pieces();
  pieces.pairs[1] = u32_pair("general.alignment", 8);
  pieces.alignment = 8;
  pieces.tensors.pop_back();
  pieces.data.resize(64 + 72);
  EXPECT_EQ(parse_pieces(pieces.file()).tensors.size(), 2u);
}

TEST(HostileGguf, Places) {
  const auto with_tensor = [](size_t index, const std::string& tensor) {
    Pieces pieces = sound_pieces();
    pieces.tensors[index] = tensor;
    return refused_gguf(pieces.file());
  };
  for (const uint64_t offset : {uint64_t{0}, uint64_t{32}, uint64_t{65}, uint64_t{96},
                                uint64_t{1} << 40, ~uint64_t{0}, ~uint64_t{31}}) {
    const std::string error = with_tensor(0, tensor_of("second", {64, 2}, 2, offset));
    EXPECT_TRUE(contains(error, "expected it to begin at data offset")) << error;
  }
  EXPECT_TRUE(contains(with_tensor(2, tensor_of("third", {9}, 30, 160)), "is the file cut short?"));
  EXPECT_TRUE(contains(with_tensor(2, tensor_of("third", {7}, 0, 160)), "is the file cut short?"));
  EXPECT_TRUE(contains(with_tensor(2, tensor_of("first", {8}, 30, 160)), "found it twice"));
  // Rows of 18 bytes: the second tensor ends at byte 2^64 + 16, which is 16 in 64 bits.
  Pieces pieces = sound_pieces();
  pieces.tensors = {tensor_of("a", {8}, 0, 0), tensor_of("b", {32, 1024819115206086200u}, 2, 32)};
  EXPECT_TRUE(contains(refused_gguf(pieces.file()),
                       "tensor 'b': expected 18446744073709551600 bytes at data offset 32, found "
                       "176 bytes of data in the file; is the file cut short?"));
}

TEST(HostileGguf, ShapesAndTypes) {
  const auto with_tensor = [](const std::vector<uint64_t>& dimensions, uint32_t type) {
    Pieces pieces = sound_pieces();
    pieces.tensors[2] = tensor_of("third", dimensions, type, 160);
    return refused_gguf(pieces.file());
  };
  EXPECT_TRUE(contains(with_tensor({1, 1, 1, 1, 8}, 0), "at most 4 dimensions, found 5"));
  EXPECT_TRUE(contains(with_tensor({uint64_t{1} << 63}, 0), "below 2^63"));
  EXPECT_TRUE(contains(with_tensor({uint64_t{1} << 40, uint64_t{1} << 40}, 0), "2^64 bytes"));
  EXPECT_TRUE(contains(with_tensor({33}, 2), "columns: expected a multiple of 32, found 33"));
  EXPECT_TRUE(contains(with_tensor({32, 8}, 12), "columns: expected a multiple of 256"));
  EXPECT_TRUE(contains(with_tensor({}, 12), "expected a shape that Q4_K can have"));
  EXPECT_TRUE(contains(with_tensor({256}, 16), "found IQ2_XXS; quantise it with a supported type"));
  EXPECT_TRUE(contains(with_tensor({8}, 4), "found number 4"));
  EXPECT_TRUE(contains(with_tensor({8}, 0xFFFFFFFFu), "found number 4294967295"));
}

// A file is refused, or its tensors lie one after the other within it.
void expect_error_or_places(const std::string& bytes) {
  try {
    for (const TensorEntry& entry : parse_pieces(bytes).tensors) {
      uint64_t size = 0;
      ASSERT_TRUE(byte_count(entry.shape, entry.dtype, &size));
      ASSERT_TRUE(size == entry.bytes && entry.offset <= bytes.size() &&
                  entry.bytes <= bytes.size() - entry.offset);
    }
  } catch (const Error& error) {
    ASSERT_EQ(error.kind(), ErrorKind::bad_model) << error.what();
    ASSERT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
  }
}

TEST(HostileGguf, EveryTruncationPointAndOneByteFlip) {
  const std::string sound = sound_pieces().file();
  for (size_t bytes = 0; bytes < sound.size(); ++bytes) {
    EXPECT_THROW(parse_pieces(sound.substr(0, bytes)), Error) << bytes;
  }
  for (size_t i = 0; i < sound.size(); ++i) {
    for (const int mask : {0x01, 0x02, 0x04, 0x08, 0x10, 0x20, 0x40, 0x80, 0xFF}) {
      std::string file = sound;
      file[i] = static_cast<char>(file[i] ^ mask);
      expect_error_or_places(file);
    }
  }
}

TEST(HostileGguf, ArraysCostNoMoreThanTheirLimit) {
  Pieces pieces;
  pieces.pairs = {
      array_pair("k", kU8, kMaxGgufElements + 1, std::string(kMaxGgufElements + 1, '\0'))};
  const std::string file = pieces.file();
  const size_t before = testing_files::restart_peak_bytes();
  EXPECT_TRUE(contains(refused_gguf(file), "elements in all arrays together"));
  EXPECT_LE(testing_files::peak_bytes() - before, size_t{32} << 20);
}

TEST(Gguf, ShardsSayTheirPlace) {
  const auto split_of = [](const std::vector<std::string>& pairs) {
    Pieces pieces;
    pieces.pairs = pairs;
    return gguf_split(parse_pieces(pieces.file()), "f");
  };
  EXPECT_EQ(split_of({}).count, 1);
  const GgufSplit split = split_of({u16_pair("split.no", 1), u16_pair("split.count", 3),
                                    pair_of("split.tensors.count", kI32, bytes_of<int32_t>(7))});
  EXPECT_TRUE(split.number == 1 && split.count == 3 && split.tensors == 7);
  EXPECT_EQ(split_of({u16_pair("split.count", 0)}).count, 1);
  EXPECT_TRUE(contains(error_of([&] {
                         split_of({u16_pair("split.no", 3), u16_pair("split.count", 3)});
                       }),
                       "split.no"));
  EXPECT_TRUE(
      contains(error_of([&] { split_of({text_pair("split.count", "3")}); }), "split.count"));
}

}  // namespace
}  // namespace klotski
