#include "experts/routing_trace.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <numeric>
#include <random>
#include <sstream>

#include "base/error.h"
#include "base/testing.h"

namespace klotski {
namespace {

RoutingTraceShape small_shape() { return {"tiny", {{LayerId(1), 4, 2}, {LayerId(3), 300, 1}}}; }

RoutingRecord record(uint32_t sequence, uint32_t position, TokenId token,
                     std::vector<int> experts) {
  RoutingRecord result{sequence, position, token, {}};
  for (const int expert : experts) result.choices.push_back(ExpertId(expert));
  return result;
}

std::string written(const RoutingTraceShape& shape, const std::vector<RoutingRecord>& records) {
  std::ostringstream out;
  RoutingTraceWriter writer(out, shape);
  for (const RoutingRecord& one : records) writer.append(one);
  return out.str();
}

std::vector<RoutingRecord> read_all(const std::string& bytes) {
  RoutingTraceReader reader(std::as_bytes(std::span(bytes)), "trace");
  std::vector<RoutingRecord> records;
  for (RoutingRecord one; reader.next(one);) records.push_back(one);
  EXPECT_EQ(static_cast<int64_t>(records.size()), reader.records());
  return records;
}

std::string reading_refused(const std::string& bytes) {
  return refusal([&] { read_all(bytes); });
}

std::string with_header(const std::string& header, const std::string& rest = "") {
  std::string bytes = "KLTRACE1";
  for (int i = 0; i < 4; ++i) bytes.push_back(static_cast<char>(header.size() >> (8 * i)));
  return bytes + header + rest;
}

bool same(const RoutingRecord& a, const RoutingRecord& b) {
  return a.sequence == b.sequence && a.position == b.position && a.token == b.token &&
         a.choices == b.choices;
}

TEST(RoutingTrace, BytesAreAsDocumented) {
  const std::string header =
      R"({"layers":[{"experts":300,"layer":3,"top_k":1}],"model":"m","version":1})";
  const std::string bytes =
      written({"m", {{LayerId(3), 300, 1}}}, {record(0x01020304, 5, -2, {299})});
  const std::string expected =
      with_header(header, std::string("\x04\x03\x02\x01\x05\0\0\0\xFE\xFF\xFF\xFF\x2B\x01", 14));
  EXPECT_EQ(bytes, expected);
}

TEST(RoutingTrace, RandomTracesComeBack) {
  std::mt19937 random(1);
  for (int round = 0; round < 50; ++round) {
    RoutingTraceShape shape{"random", {}};
    for (int i = 0, layer = 0; i < 1 + round % 5; ++i) {
      layer += 1 + static_cast<int>(random() % 3);
      const int experts = 1 + static_cast<int>(random() % (round % 7 == 0 ? 65535 : 64));
      shape.layers.push_back(
          {LayerId(layer), experts, 1 + static_cast<int>(random() % std::min(experts, 8))});
    }
    std::vector<RoutingRecord> records;
    for (uint32_t n = 0; n < random() % 200; ++n) {
      RoutingRecord one{static_cast<uint32_t>(random()), n, static_cast<int32_t>(random()), {}};
      for (const RoutedLayer& layer : shape.layers) {
        const auto first = static_cast<int>(random() % layer.experts);
        for (int k = 0; k < layer.top_k; ++k) {
          one.choices.push_back(ExpertId((first + k) % layer.experts));
        }
      }
      records.push_back(one);
    }
    const std::string bytes = written(shape, records);
    EXPECT_EQ(RoutingTraceReader(std::as_bytes(std::span(bytes)), "trace").shape(), shape);
    const auto back = read_all(bytes);
    ASSERT_EQ(back.size(), records.size());
    for (size_t i = 0; i < back.size(); ++i) EXPECT_TRUE(same(back[i], records[i]));
  }
}

TEST(RoutingTrace, FileOfSeveralPiecesIsRead) {
  const auto path = std::filesystem::path(testing::TempDir()) /
                    (std::to_string(::getpid()) + "_routing_trace_test.kltrace");
  {
    std::ofstream out(path, std::ios::binary);
    RoutingTraceWriter writer(out, small_shape());
    for (uint32_t i = 0; i < 150000; ++i) writer.append(record(0, i, 7, {3, 0, 299}));
  }
  ASSERT_GT(std::filesystem::file_size(path), 2u << 20);
  RoutingTraceReader reader(path);
  uint32_t count = 0;
  for (RoutingRecord one; reader.next(one); ++count) {
    ASSERT_TRUE(same(one, record(0, count, 7, {3, 0, 299})));
  }
  EXPECT_EQ(count, 150000u);
  std::filesystem::remove(path);
}

TEST(RoutingTrace, EveryCutIsRefusedOrEndsAtARecord) {
  const std::string bytes =
      written(small_shape(), {record(0, 0, 1, {1, 2, 3}), record(0, 1, 1, {3, 0, 9})});
  const size_t record_bytes = 12 + 3 * 2;
  const size_t data = bytes.size() - 2 * record_bytes;
  for (size_t size = 0; size < bytes.size(); ++size) {
    const std::string message = reading_refused(bytes.substr(0, size));
    const bool whole = size == data || size == data + record_bytes;
    EXPECT_EQ(message.empty(), whole) << size << ": " << message;
  }
  EXPECT_NE(reading_refused(bytes.substr(0, bytes.size() - 1))
                .find("offset " + std::to_string(data + record_bytes) + " is torn"),
            std::string::npos);
}

TEST(RoutingTrace, BadHeadersAreRefused) {
  const auto layers = [](const std::string& text) {
    return with_header(R"({"version":1,"model":"m","layers":)" + text + "}");
  };
  EXPECT_EQ(reading_refused(layers(R"([{"layer":0,"experts":4,"top_k":2}])")), "");
  EXPECT_EQ(
      reading_refused(with_header(
          R"({"version":1,"model":"m","more":[],"layers":[{"layer":0,"experts":4,"top_k":2}]})")),
      "");
  EXPECT_NE(reading_refused(std::string("KLTRACE2\0\0\0\0", 12)).find("KLTRACE1"),
            std::string::npos);
  EXPECT_NE(reading_refused(std::string("KLTRACE1\xFF\xFF\xFF\xFF", 12)).find("4294967295"),
            std::string::npos);
  EXPECT_NE(reading_refused(with_header("[]")), "");
  EXPECT_NE(
      reading_refused(with_header(R"({"version":2,"model":"m","layers":[]})")).find("version"),
      std::string::npos);
  for (const char* bad :
       {"[]", "7", "[7]", R"([{"layer":0,"experts":65536,"top_k":1}])",
        R"([{"layer":0,"experts":4,"top_k":5}])", R"([{"layer":0,"experts":4,"top_k":0}])",
        R"([{"layer":0,"experts":4}])", R"([{"layer":-1,"experts":4,"top_k":1}])",
        R"([{"layer":2,"experts":4,"top_k":1},{"layer":2,"experts":4,"top_k":1}])",
        R"([{"layer":2,"experts":4,"top_k":1},{"layer":1,"experts":4,"top_k":1}])"}) {
    EXPECT_NE(reading_refused(layers(bad)), "") << bad;
  }
  std::string wide;
  for (int i = 0; i < 9; ++i) {
    wide += (i ? "," : "[") + std::string("{\"layer\":") + std::to_string(i) +
            R"(,"experts":65535,"top_k":65535})";
  }
  EXPECT_NE(reading_refused(layers(wide + "]")).find("choices a token"), std::string::npos);
}

TEST(RoutingTrace, BadChoicesAreRefusedWithTheirPlace) {
  const std::string out_of_range = written(small_shape(), {record(0, 0, 1, {1, 4, 3})});
  EXPECT_NE(reading_refused(out_of_range).find("layer 1: expected an expert below 4, found 4"),
            std::string::npos);
  const std::string twice =
      written(small_shape(), {record(0, 0, 1, {1, 2, 3}), record(0, 1, 1, {2, 2, 3})});
  EXPECT_NE(reading_refused(twice).find("expert 2 is named twice"), std::string::npos);
}

TEST(RoutingTrace, WriterRefusesWhatReadersWould) {
  std::ostringstream out;
  EXPECT_NE(refusal([&] { RoutingTraceWriter(out, {"m", {}}); }), "");
  EXPECT_NE(refusal([&] { RoutingTraceWriter(out, {"m", {{LayerId(0), 4, 5}}}); }), "");
  EXPECT_NE(refusal([&] {
              RoutingTraceWriter writer(out, small_shape());
              writer.append(record(0, 0, 0, {1}));
            }),
            "");
  EXPECT_EQ(read_all(written({"\xFF", {{LayerId(0), 4, 1}}}, {})).size(), 0u);
}

TEST(RoutingTrace, FullDiskIsReported) {
  std::ofstream full("/dev/full", std::ios::binary);
  EXPECT_NE(refusal([&] {
              RoutingTraceWriter writer(full, small_shape());
              for (uint32_t i = 0; i < 10000; ++i) writer.append(record(0, i, 1, {1, 2, 3}));
            }).find("disk"),
            std::string::npos);
}

// A header of a few bytes must not make readers of shapes allocate gigabytes.
TEST(RoutingTrace, ExpertsOfAllLayersAreBounded) {
  RoutingTraceShape shape{"wide", {}};
  for (int layer = 0; layer < 16; ++layer) shape.layers.push_back({LayerId(layer), 65535, 1});
  EXPECT_EQ(refusal([&] { check_shape(shape, "trace"); }), "");
  shape.layers.push_back({LayerId(16), 65535, 1});
  EXPECT_NE(refusal([&] { check_shape(shape, "trace"); }).find("1048576 experts of all layers"),
            std::string::npos);
}

}  // namespace
}  // namespace klotski
