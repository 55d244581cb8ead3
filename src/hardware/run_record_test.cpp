#include "hardware/run_record.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>

#include "base/bytes.h"
#include "base/json.h"

namespace klotski {
namespace {

RunRecord example() {
  return {.when = "2030-01-31T23:59:59Z",
          .command = "bench",
          .model = "some-model",
          .machine = "a processor, avx2, 8 threads",
          .strategy = "klotski",
          .micro_batch = 4,
          .micro_batches = 10,
          .ram_bytes = 3 * kGiB,
          .sequences = 40,
          .planned = {.seconds = 10,
                      .prefill_seconds = 4,
                      .decode_seconds = 6,
                      .prompt_tokens = 4000,
                      .generated_tokens = 500,
                      .lanes = {{"compute", 5, 0}, {"disk read", 8, 4 * kGiB}}},
          .measured = {.seconds = 12.5,
                       .prefill_seconds = 5,
                       .decode_seconds = 7.5,
                       .prompt_tokens = 4000,
                       .generated_tokens = 500,
                       .lanes = {{"disk read", 12, 5 * kGiB}, {"host copy", 0.5, kMiB}}}};
}

TEST(RunRecord, RateIsOfGeneratedTokensOverAllTime) {
  EXPECT_DOUBLE_EQ(example().planned.tokens_per_second(), 50);
  RunFigures no_time = example().planned;
  no_time.seconds = 0;
  EXPECT_DOUBLE_EQ(no_time.tokens_per_second(), 0);
}

TEST(RunRecord, ALaneThatDidNothingHasZeros) {
  EXPECT_EQ(example().planned.of_lane("disk read"), (LaneFigures{"disk read", 8, 4 * kGiB}));
  EXPECT_EQ(example().planned.of_lane("KV in"), (LaneFigures{"KV in", 0, 0}));
}

TEST(RunRecord, RatioNeedsBoth) {
  EXPECT_EQ(measured_over_planned(4, 5), 1.25);
  EXPECT_EQ(measured_over_planned(0, 5), std::nullopt);
  EXPECT_EQ(measured_over_planned(5, 0), std::nullopt);
  EXPECT_EQ(measured_over_planned(std::nan(""), 1), std::nullopt);
}

TEST(RunRecord, IsOneLineThatReadsBack) {
  const std::string line = write_run_record(example());
  EXPECT_EQ(line.find('\n'), std::string::npos);
  EXPECT_EQ(read_run_record(line), example());
}

TEST(RunRecord, AnyNumbersReadBackExactly) {
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> seconds(0, 1e6);
  std::uniform_int_distribution<int64_t> count(0, int64_t{1} << 53);
  for (int i = 0; i < 200; ++i) {
    RunRecord record = example();
    for (RunFigures* figures : {&record.planned, &record.measured}) {
      figures->seconds = seconds(random);
      figures->prefill_seconds = seconds(random);
      figures->decode_seconds = seconds(random);
      figures->prompt_tokens = count(random);
      figures->generated_tokens = count(random);
      figures->lanes.resize(static_cast<size_t>(random() % 5));
      for (LaneFigures& lane : figures->lanes) {
        lane = {"l" + std::to_string(random() % 9), seconds(random),
                static_cast<uint64_t>(count(random))};
      }
    }
    record.ram_bytes = random() >> 1;
    record.sequences = count(random);
    ASSERT_EQ(read_run_record(write_run_record(record)), record);
  }
}

TEST(RunRecord, NamesFromOutsideStayOnTheirLine) {
  RunRecord record = example();
  record.model = "quote\" backslash\\ snowman\xE2\x98\x83";
  EXPECT_EQ(read_run_record(write_run_record(record)), record);
  record.model = "two\nlines";
  const std::string line = write_run_record(record);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  EXPECT_EQ(read_run_record(line), std::nullopt) << "a terminal would obey it";
  record.model = "no UTF-8: \xFF";
  EXPECT_TRUE(read_run_record(write_run_record(record)).has_value());
  record.model = std::string(300, 'x');
  EXPECT_EQ(read_run_record(write_run_record(record)), std::nullopt);
}

TEST(RunRecord, ATornLineIsNone) {
  const std::string line = write_run_record(example());
  for (size_t length = 0; length < line.size(); ++length) {
    ASSERT_EQ(read_run_record(line.substr(0, length)), std::nullopt) << length;
    if (length > 0) {
      ASSERT_EQ(read_run_record(line.substr(length)), std::nullopt) << length;
    }
  }
  EXPECT_EQ(read_run_record(line + line), std::nullopt);
}

TEST(RunRecord, EveryFieldIsNeeded) {
  const Json whole = Json::parse(write_run_record(example()));
  for (const auto& [key, value] : whole.items()) {
    for (const Json& other : {Json(nullptr), Json(Json::array()), Json(true), Json(-1)}) {
      Json changed = whole;
      changed[key] = other;
      EXPECT_EQ(read_run_record(changed.dump()), std::nullopt) << key << " " << other;
    }
  }
  for (const char* figures : {"planned", "measured"}) {
    for (const auto& [key, value] : whole[figures].items()) {
      Json changed = whole;
      changed[figures].erase(key);
      EXPECT_EQ(read_run_record(changed.dump()), std::nullopt) << figures << "." << key;
    }
  }
  for (const auto& [key, value] : whole["planned"]["lanes"][0].items()) {
    Json changed = whole;
    changed["planned"]["lanes"][0].erase(key);
    EXPECT_EQ(read_run_record(changed.dump()), std::nullopt) << "lanes." << key;
  }
}

TEST(RunRecord, NonsenseIsNone) {
  const auto changed = [](auto&& change) {
    RunRecord record = example();
    change(record);
    return read_run_record(write_run_record(record));
  };
  EXPECT_TRUE(changed([](RunRecord&) {}).has_value());
  EXPECT_FALSE(changed([](RunRecord& r) { r.planned.seconds = -1; }));
  EXPECT_FALSE(changed([](RunRecord& r) { r.measured.seconds = std::nan(""); }));
  EXPECT_FALSE(
      changed([](RunRecord& r) { r.measured.seconds = std::numeric_limits<double>::infinity(); }));
  EXPECT_FALSE(changed([](RunRecord& r) { r.measured.generated_tokens = -5; }));
  EXPECT_FALSE(changed([](RunRecord& r) { r.planned.lanes.resize(17); }));
  EXPECT_FALSE(changed([](RunRecord& r) { r.planned.lanes[0].bytes = UINT64_MAX; }));
  EXPECT_FALSE(changed([](RunRecord& r) { r.planned.lanes[0].lane = "\x1B[2J"; }));
  for (const char* when : {"", "yesterday", "2030-01-31", "2030-01-31T23:59:59+01:00",
                           "2030-01-31 23:59:59Z", "203a-01-31T23:59:59Z"}) {
    EXPECT_FALSE(changed([when](RunRecord& r) { r.when = when; })) << when;
  }
  Json other = Json::parse(write_run_record(example()));
  other["format"] = 2;
  EXPECT_FALSE(read_run_record(other.dump()));
}

TEST(RunRecord, TableHasPlannedBesideMeasured) {
  EXPECT_EQ(planned_beside_measured(example().planned, example().measured),
            "                     planned    measured   ratio\n"
            "time                10.000 s    12.500 s    1.25\n"
            "tokens/s               50.00       40.00    0.80\n"
            "prefill              4.000 s     5.000 s    1.25\n"
            "decode               6.000 s     7.500 s    1.25\n"
            "compute              5.000 s     0.000 s       -\n"
            "disk read            8.000 s    12.000 s    1.50\n"
            "                    4.00 GiB    5.00 GiB    1.25\n"
            "host copy            0.000 s     0.500 s       -\n"
            "                         0 B     1.0 MiB       -\n");
}

}  // namespace
}  // namespace klotski
