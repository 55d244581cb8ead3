#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iosfwd>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/ids.h"
#include "base/json.h"

namespace klotski {

// A layer with a router: `experts` to choose from, `top_k` of them for each token.
struct RoutedLayer {
  LayerId layer;
  int32_t experts = 0;
  int32_t top_k = 0;

  bool operator==(const RoutedLayer&) const = default;
};

// The model of a routing trace. Only routed layers are listed, in the order they run; a "routed
// layer" index counts these, not all layers of the model.
struct RoutingTraceShape {
  std::string model;
  std::vector<RoutedLayer> layers;

  int64_t choices_per_token() const;
  int64_t experts() const;  // of all layers
  bool operator==(const RoutingTraceShape&) const = default;
};

// Throws where the shape is beyond the limits of the file format (docs/routing-trace.md); `what`
// begins the message.
void check_shape(const RoutingTraceShape& shape, const std::string& what);

// The fields "model" and "layers" of a header (docs/routing-trace.md), which files about a model's
// routing share; the shape that is read is checked.
Json shape_as_json(const RoutingTraceShape& shape);
RoutingTraceShape shape_from_json(const JsonFields& fields, const std::string& what);

// The experts that one token went to.
struct RoutingRecord {
  uint32_t sequence = 0;
  uint32_t position = 0;  // position of the token in its sequence
  TokenId token = 0;
  std::vector<ExpertId> choices;  // [routed layer][top_k of that layer], best first
};

// Writes the format of docs/routing-trace.md. The stream must be binary and outlive the writer.
class RoutingTraceWriter {
 public:
  RoutingTraceWriter(std::ostream& out, RoutingTraceShape shape);

  void append(const RoutingRecord& record);

 private:
  std::ostream& out_;
  RoutingTraceShape shape_;
  std::string bytes_;  // bytes of one record
};

// Reads a trace in pieces of bounded size. The constructor checks the header and that the file ends
// with a whole record; next() checks each record.
class RoutingTraceReader {
 public:
  explicit RoutingTraceReader(const std::filesystem::path& path);
  // `bytes` must outlive the reader; `what` names them in messages.
  RoutingTraceReader(std::span<const std::byte> bytes, std::string what);

  const RoutingTraceShape& shape() const { return shape_; }
  int64_t records() const { return static_cast<int64_t>((size_ - data_begin_) / record_bytes_); }

  // The next record, or false at the end.
  bool next(RoutingRecord& record);

 private:
  void read_header();
  void read_at(uint64_t offset, std::span<std::byte> out) const;
  void refill();
  void read_choices(const std::byte* from, std::vector<ExpertId>& choices);

  std::optional<File> file_;  // none: the bytes are in memory
  std::span<const std::byte> bytes_;
  std::string what_;
  uint64_t size_ = 0;

  RoutingTraceShape shape_;
  uint64_t data_begin_ = 0;
  uint64_t record_bytes_ = 1;

  uint64_t offset_ = 0;            // offset of the next record in the file
  std::vector<std::byte> buffer_;  // whole records
  size_t buffer_next_ = 0;
  std::vector<uint64_t> seen_in_;  // [expert]: number of the last choice list that named it
  uint64_t choice_lists_ = 0;
};

}  // namespace klotski
