// Bad safetensors files: header lengths and text, duplicates, offsets, shapes, types, and a sound
// file damaged in every place.

#include <gtest/gtest.h>

#include <limits>

#include "weights/safetensors.h"
#include "weights/testing.h"

namespace klotski {
namespace {

using testing_files::contains;
using testing_files::error_of;
using testing_files::prefix_of;
using testing_files::safetensors_text;

std::vector<TensorEntry> parse_file(const std::string& file) {
  return parse_safetensors(std::as_bytes(std::span(file)), "f");
}

// The error of a file with this header and as many bytes of data.
std::string refused(const std::string& header, size_t data_bytes) {
  return error_of([&] { parse_file(safetensors_text(header, std::string(data_bytes, 'd'))); });
}

// The header of one tensor 'a' with these fields.
std::string tensor(const std::string& fields) { return "{\"a\":{" + fields + "}}"; }

std::string shaped(const std::string& shape) {
  return tensor("\"dtype\":\"U8\",\"shape\":[" + shape + "],\"data_offsets\":[0,1]");
}

TEST(HostileSafetensors, HeaderLengths) {
  const uint64_t most = std::numeric_limits<uint64_t>::max();
  for (const uint64_t length :
       {uint64_t{0}, uint64_t{3}, uint64_t{100'000'001}, most / 2 + 1, most, most - 7}) {
    const std::string file = prefix_of(length) + "{}";
    EXPECT_TRUE(contains(error_of([&] { parse_file(file); }),
                         "found a length of " + std::to_string(length)));
  }
  // A header above the cap, although the file is large enough, is refused by the prefix alone.
  const std::string prefix = prefix_of(100'000'001);
  EXPECT_TRUE(contains(
      error_of([&] { parse_safetensors_prefix(std::as_bytes(std::span(prefix)), most, "f"); }),
      "1 to 100000000 bytes"));
}

TEST(HostileSafetensors, HeaderText) {
  EXPECT_TRUE(contains(refused("\xEF\xBB\xBF{}", 0), "byte-order mark"));
  EXPECT_TRUE(contains(refused(std::string("{}\0", 3), 0), "NUL"));
  EXPECT_TRUE(contains(refused(std::string("{\"a\0b\":1}", 9), 0), "NUL"));
  EXPECT_TRUE(contains(refused("{\"\xFF\":1}", 0), "not valid JSON"));
  EXPECT_TRUE(contains(refused("{\"\xC0\x80\":1}", 0), "not valid JSON"));
  EXPECT_TRUE(contains(refused("{\"\\ud800\":1}", 0), "not valid JSON"));
  for (const char* bad : {"{} x", "{}{}", "{},", "", "   ", "{", "{\"a\"", "{\"a\":", "{'a':1}",
                          "{//c\n}", "{}\v", "\f{}", "NaN", "{\"a\":{\"dtype\":\"U8"}) {
    refused(std::string(bad) + " ", 0);
  }
  for (const char* bad : {"[]", "1", "null", "\"x\"", "{\"a\":1}", "{\"a\":null}", "{\"a\":[]}",
                          "{\"__metadata__\":1}", "{\"__metadata__\":{\"a\":1}}",
                          "{\"__metadata__\":{\"a\":{}}}", "{\"__metadata__\":{\"a\":null}}"}) {
    EXPECT_TRUE(contains(refused(bad, 0), "expected")) << bad;
  }
}

TEST(HostileSafetensors, Duplicates) {
  const std::string fields = R"("dtype":"U8","shape":[0],"data_offsets":[0,0])";
  EXPECT_TRUE(contains(
      refused("{\"a\":{" + fields + "},\"b\":{" + fields + "},\"\\u0061\":{" + fields + "}}", 0),
      "the tensor 'a' appears twice"));
  for (const char* again : {R"("dtype":"U8")", R"("shape":[0])", R"("data_offsets":[0,0])"}) {
    EXPECT_TRUE(contains(refused(tensor(fields + "," + again), 0), "appears twice")) << again;
  }
  EXPECT_TRUE(contains(refused(R"({"__metadata__":{},"__metadata__":{}})", 0), "appears twice"));
  EXPECT_TRUE(contains(refused(R"({"__metadata__":{"k":"1","l":"","k":"2"}})", 0), "'k'"));
  EXPECT_TRUE(contains(refused(tensor(fields + ",\"strides\":[1]"), 0), "'strides'"));
}

TEST(HostileSafetensors, Offsets) {
  const auto two = [](const char* first, const char* second) {
    return fmt::format(R"({{"a":{{"dtype":"U8","shape":[4],"data_offsets":[{}]}},)"
                       R"("b":{{"dtype":"U8","shape":[4],"data_offsets":[{}]}}}})",
                       first, second);
  };
  EXPECT_EQ(parse_file(safetensors_text(two("4,8", "0,4"), "12345678")).size(), 2u);
  EXPECT_TRUE(contains(refused(two("0,4", "2,6"), 6), "'b'"));            // overlap
  EXPECT_TRUE(contains(refused(two("0,4", "0,4"), 4), "found 0"));        // one range twice
  EXPECT_TRUE(contains(refused(two("0,4", "5,9"), 9), "data offset 4"));  // gap
  EXPECT_TRUE(contains(refused(two("1,5", "5,9"), 9), "data offset 0"));  // gap in front
  EXPECT_TRUE(contains(refused(two("4,0", "4,8"), 8), "found [4, 0]"));   // reversed
  EXPECT_TRUE(contains(refused(two("0,4", "4,8"), 9), "found 9"));        // bytes after
  EXPECT_TRUE(contains(refused(two("0,4", "4,8"), 7), "cut short"));
  EXPECT_TRUE(contains(refused("{}", 1), "found 1"));
  for (const char* bad : {"", "0", "0,4,4", "-0,4", "0,4.0", "0,\"4\"", "[0,4]", "0,null",
                          "18446744073709551615,3", "0,18446744073709551616"}) {
    EXPECT_TRUE(contains(refused(two(bad, "4,8"), 8), "'a': data_offsets")) << bad;
  }
}

TEST(HostileSafetensors, Shapes) {
  for (const char* bad :
       {"-1", "-0", "1.0", "1e3", "1e0", "12345678901234567890", "99999999999999999999999",
        "9223372036854775808", "\"1\"", "null", "[1]", "{}", "true", "1e999", "01"}) {
    EXPECT_TRUE(contains(refused(shaped(bad), 1), "expected") ||
                contains(refused(shaped(bad), 1), "not valid JSON"))
        << bad;
  }
  for (const char* overflow :
       {"4294967296,4294967296", "9223372036854775807,3",
        "9223372036854775807,9223372036854775807,0", "2305843009213693953,8"}) {
    EXPECT_TRUE(contains(refused(shaped(overflow), 1), "below 2^61")) << overflow;
  }
  // A product that wraps to the byte span it states.
  EXPECT_TRUE(contains(refused(tensor(R"("dtype":"F32","shape":[4611686018427387905],)"
                                      R"("data_offsets":[0,4])"),
                               4),
                       "below 2^61"));
  std::string many = "1";
  for (int i = 1; i < 16; ++i) many += ",1";
  EXPECT_EQ(parse_file(safetensors_text(shaped(many), "d"))[0].shape.size(), 16u);
  EXPECT_TRUE(contains(refused(shaped(many + ",1"), 1), "at most 16 dimensions"));
  for (int i = 0; i < 1'000'000; ++i) many += ",1";
  EXPECT_TRUE(contains(refused(shaped(many), 1), "at most 16 dimensions"));
}

TEST(HostileSafetensors, DTypes) {
  const auto typed = [](const char* dtype, const char* shape, int bytes) {
    return tensor(
        fmt::format(R"("dtype":{},"shape":{},"data_offsets":[0,{}])", dtype, shape, bytes));
  };
  for (const char* bad : {"\"\"", "\"f32\"", "\"F128\"", "1", "null", "[\"F32\"]", "{}"}) {
    EXPECT_TRUE(contains(refused(typed(bad, "[1]", 4), 4), "'a': dtype")) << bad;
  }
  EXPECT_TRUE(contains(refused(typed("\"F32\"", "[1]", 3), 3), "expected 4 bytes"));
  EXPECT_TRUE(contains(refused(typed("\"F4\"", "[3]", 2), 2), "whole bytes"));
  EXPECT_TRUE(contains(refused(typed("\"F6_E2M3\"", "[2]", 2), 2), "whole bytes"));
  EXPECT_EQ(parse_file(safetensors_text(typed("\"F6_E3M2\"", "[4]", 3), "ddd"))[0].bytes, 3u);
  for (const char* missing :
       {R"("shape":[],"data_offsets":[0,1])", R"("dtype":"U8","data_offsets":[0,1])",
        R"("dtype":"U8","shape":[])", ""}) {
    EXPECT_TRUE(contains(refused(tensor(missing), 1), "found no ")) << missing;
  }
}

// A sound file of about 4 KiB, to be damaged in every place.
std::string sound_file() {
  std::string header = "{\"__metadata__\":{\"format\":\"pt\"}";
  size_t end = 0;
  for (int i = 0; i < 37; ++i) {
    const size_t begin = end;
    end += static_cast<size_t>(2 * (i % 5) * 10);
    header += fmt::format(
        ",\"layers.{}.w\":{{\"dtype\":\"BF16\",\"shape\":[{},10],"
        "\"data_offsets\":[{},{}]}}",
        i, i % 5, begin, end);
  }
  return safetensors_text(header + "}  ", std::string(end, 'd'));
}

void expect_error_or_exact_cover(const std::string& file) {
  try {
    const auto entries = parse_file(file);
    uint64_t covered = 0;
    for (const TensorEntry& entry : entries) {
      ASSERT_LE(entry.offset + entry.bytes, file.size());
      covered += entry.bytes;
    }
    ASSERT_LE(covered, file.size() - 8);
  } catch (const Error& error) {
    ASSERT_EQ(error.kind(), ErrorKind::bad_model);
    ASSERT_EQ(std::string_view(error.what()).find('\n'), std::string_view::npos);
  }
}

TEST(HostileSafetensors, EveryTruncationPoint) {
  const std::string file = sound_file();
  ASSERT_EQ(parse_file(file).size(), 37u);
  for (size_t bytes = 0; bytes < file.size(); ++bytes) {
    EXPECT_THROW(parse_file(file.substr(0, bytes)), Error) << bytes;
  }
}

TEST(HostileSafetensors, EveryOneByteFlip) {
  const std::string sound = sound_file();
  ASSERT_GT(sound.size(), 3900u);
  for (size_t i = 0; i < sound.size(); ++i) {
    for (const int mask : {0x01, 0x02, 0x04, 0x08, 0x10, 0x20, 0x40, 0x80, 0xFF}) {
      std::string file = sound;
      file[i] = static_cast<char>(file[i] ^ mask);
      expect_error_or_exact_cover(file);
    }
  }
}

}  // namespace
}  // namespace klotski
