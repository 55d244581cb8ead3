#include <algorithm>
#include <cctype>
#include <utility>

#include "base/json.h"
#include "hardware/run_record.h"

namespace klotski {

namespace {

constexpr int kRecordFormat = 1;  // version of a line; other versions are not read
constexpr const char* kRecord = "run record";
constexpr int kDepth = 4;              // record, figures, lanes, lane
constexpr size_t kMostText = 256;      // bytes of a name
constexpr size_t kMostLanes = 16;      // lanes of a run
constexpr double kMostSeconds = 1e12;  // more is nonsense
constexpr int64_t kMostCount = int64_t{1} << 53;

Json to_json(const RunFigures& figures) {
  Json lanes = Json::array();
  for (const LaneFigures& lane : figures.lanes) {
    lanes.push_back(
        {{"lane", lane.lane}, {"busy_seconds", lane.busy_seconds}, {"bytes", lane.bytes}});
  }
  return {{"seconds", figures.seconds},
          {"prefill_seconds", figures.prefill_seconds},
          {"decode_seconds", figures.decode_seconds},
          {"prompt_tokens", figures.prompt_tokens},
          {"generated_tokens", figures.generated_tokens},
          {"lanes", std::move(lanes)}};
}

// A name that is printed later: short, and without characters that a terminal would obey.
std::string name_in(const JsonFields& fields, std::string_view key) {
  std::string text = fields.string(key);
  const bool plain = std::none_of(text.begin(), text.end(), [](char c) {
    return std::iscntrl(static_cast<unsigned char>(c)) != 0;
  });
  if (!plain || text.size() > kMostText) fields.refuse(key, "a short line");
  return text;
}

std::string time_in(const JsonFields& fields, std::string_view key) {
  constexpr std::string_view kShape = "0000-00-00T00:00:00Z";
  std::string text = fields.string(key);
  const bool same = std::equal(
      text.begin(), text.end(), kShape.begin(), kShape.end(), [](char found, char expected) {
        return expected == '0' ? found >= '0' && found <= '9' : found == expected;
      });
  if (!same) fields.refuse(key, "a time such as 2030-01-31T23:59:59Z");
  return text;
}

std::vector<LaneFigures> lanes_in(const JsonFields& fields) {
  const Json* array = fields.find("lanes");
  if (array == nullptr || !array->is_array() || array->size() > kMostLanes) {
    fields.refuse("lanes", "a short array");
  }
  std::vector<LaneFigures> lanes;
  for (const Json& entry : *array) {
    const JsonFields lane(entry, kRecord, "lanes");
    lanes.push_back({.lane = name_in(lane, "lane"),
                     .busy_seconds = lane.number("busy_seconds", 0.0, kMostSeconds),
                     .bytes = static_cast<uint64_t>(lane.integer("bytes", 0, INT64_MAX))});
  }
  return lanes;
}

RunFigures figures_in(const JsonFields& parent, std::string_view key) {
  const std::optional<JsonFields> fields = parent.object(key);
  if (!fields) parent.refuse(key, "an object");
  return {.seconds = fields->number("seconds", 0.0, kMostSeconds),
          .prefill_seconds = fields->number("prefill_seconds", 0.0, kMostSeconds),
          .decode_seconds = fields->number("decode_seconds", 0.0, kMostSeconds),
          .prompt_tokens = fields->integer("prompt_tokens", 0, kMostCount),
          .generated_tokens = fields->integer("generated_tokens", 0, kMostCount),
          .lanes = lanes_in(*fields)};
}

}  // namespace

std::string write_run_record(const RunRecord& record) {
  const Json line{{"format", kRecordFormat},
                  {"when", record.when},
                  {"command", record.command},
                  {"model", record.model},
                  {"machine", record.machine},
                  {"strategy", record.strategy},
                  {"micro_batch", record.micro_batch},
                  {"micro_batches", record.micro_batches},
                  {"ram_bytes", record.ram_bytes},
                  {"sequences", record.sequences},
                  {"planned", to_json(record.planned)},
                  {"measured", to_json(record.measured)}};
  return line.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::optional<RunRecord> read_run_record(std::string_view line) {
  try {
    const Json document = parse_json(line, kRecord, ErrorKind::bad_model, {.max_depth = kDepth});
    const JsonFields fields(document, kRecord);
    if (fields.integer("format", 0, 1 << 20) != kRecordFormat) return std::nullopt;
    return RunRecord{.when = time_in(fields, "when"),
                     .command = name_in(fields, "command"),
                     .model = name_in(fields, "model"),
                     .machine = name_in(fields, "machine"),
                     .strategy = name_in(fields, "strategy"),
                     .micro_batch = fields.integer("micro_batch", 0, kMostCount),
                     .micro_batches = fields.integer("micro_batches", 0, kMostCount),
                     .ram_bytes = static_cast<uint64_t>(fields.integer("ram_bytes", 0, INT64_MAX)),
                     .sequences = fields.integer("sequences", 0, kMostCount),
                     .planned = figures_in(fields, "planned"),
                     .measured = figures_in(fields, "measured")};
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace klotski
