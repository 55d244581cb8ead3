#include "experts/routing_trace.h"

#include <algorithm>
#include <cstring>
#include <ostream>
#include <utility>

#include "base/bytes.h"
#include "base/error.h"
#include "base/json.h"

namespace klotski {

namespace {

constexpr std::string_view kMagic = "KLTRACE1";
constexpr uint64_t kPrefixBytes = 12;           // magic and the length of the header
constexpr uint64_t kMaxHeaderBytes = 1 * kMiB;  // thousands of layers
constexpr uint64_t kFixedRecordBytes = 12;      // sequence, position, token
constexpr int64_t kMaxExperts = 65535;          // expert ids are 16 bits
constexpr int64_t kMaxLayerId = 65535;
constexpr int64_t kMaxChoicesPerToken = 1 << 19;  // a record of 1 MiB
constexpr int64_t kMaxExpertsOfAllLayers = 1 << 20;
constexpr uint64_t kPieceBytes = 1 * kMiB;

template <typename Integer>
void put(std::string& bytes, Integer value) {
  for (size_t i = 0; i < sizeof(Integer); ++i) {
    bytes.push_back(static_cast<char>((static_cast<uint64_t>(value) >> (8 * i)) & 0xFF));
  }
}

template <typename Integer>
Integer get(const std::byte* from) {
  uint64_t value = 0;
  for (size_t i = 0; i < sizeof(Integer); ++i) value |= uint64_t(from[i]) << (8 * i);
  return static_cast<Integer>(value);
}

RoutingTraceShape parse_header(const std::string& text, const std::string& what) {
  const Json document = parse_json(text, what);
  const JsonFields fields(document, what);
  fields.integer("version", 1, 1);
  return shape_from_json(fields, what);
}

}  // namespace

int64_t RoutingTraceShape::choices_per_token() const {
  int64_t sum = 0;
  for (const RoutedLayer& layer : layers) sum += layer.top_k;
  return sum;
}

int64_t RoutingTraceShape::experts() const {
  int64_t sum = 0;
  for (const RoutedLayer& layer : layers) sum += layer.experts;
  return sum;
}

void check_shape(const RoutingTraceShape& shape, const std::string& what) {
  if (shape.layers.empty()) {
    fail(ErrorKind::bad_model, "{}: expected at least one routed layer, found none", what);
  }
  int64_t previous = -1;
  for (const RoutedLayer& layer : shape.layers) {
    const int64_t id = layer.layer.value;
    if (id <= previous || id > kMaxLayerId) {
      fail(ErrorKind::bad_model,
           "{}: expected routed layers in rising order up to {}, found layer "
           "{} after {}",
           what, kMaxLayerId, id, previous);
    }
    if (layer.experts < 1 || layer.experts > kMaxExperts || layer.top_k < 1 ||
        layer.top_k > layer.experts) {
      fail(ErrorKind::bad_model,
           "{}: layer {}: expected 1 to {} experts and no larger top_k, found "
           "{} experts and top_k {}",
           what, id, kMaxExperts, layer.experts, layer.top_k);
    }
    previous = id;
  }
  if (shape.experts() > kMaxExpertsOfAllLayers) {
    fail(ErrorKind::bad_model, "{}: expected at most {} experts of all layers, found {}", what,
         kMaxExpertsOfAllLayers, shape.experts());
  }
  if (shape.choices_per_token() > kMaxChoicesPerToken) {
    fail(ErrorKind::bad_model, "{}: expected at most {} choices a token, found {}", what,
         kMaxChoicesPerToken, shape.choices_per_token());
  }
}

Json shape_as_json(const RoutingTraceShape& shape) {
  Json layers = Json::array();
  for (const RoutedLayer& layer : shape.layers) {
    layers.push_back(
        {{"layer", layer.layer.value}, {"experts", layer.experts}, {"top_k", layer.top_k}});
  }
  return {{"model", shape.model}, {"layers", std::move(layers)}};
}

RoutingTraceShape shape_from_json(const JsonFields& fields, const std::string& what) {
  RoutingTraceShape shape;
  shape.model = fields.string("model");
  const Json* layers = fields.find("layers");
  if (!layers || !layers->is_array()) fields.refuse("layers", "an array of objects");
  for (const Json& element : *layers) {
    const JsonFields layer(element, what, fmt::format("layers[{}]", shape.layers.size()));
    shape.layers.push_back({LayerId(layer.integer("layer", 0, kMaxLayerId)),
                            static_cast<int32_t>(layer.integer("experts", 1, kMaxExperts)),
                            static_cast<int32_t>(layer.integer("top_k", 1, kMaxExperts))});
  }
  check_shape(shape, what);
  return shape;
}

RoutingTraceWriter::RoutingTraceWriter(std::ostream& out, RoutingTraceShape shape)
    : out_(out), shape_(std::move(shape)) {
  check_shape(shape_, "routing trace");
  Json document = shape_as_json(shape_);
  document["version"] = 1;
  // A model's name may be a path, which need not be UTF-8.
  const std::string header = document.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (header.size() > kMaxHeaderBytes) {
    fail(ErrorKind::usage, "routing trace: the header takes {}, at most {} is allowed",
         format_bytes(header.size()), format_bytes(kMaxHeaderBytes));
  }
  std::string prefix(kMagic);
  put(prefix, static_cast<uint32_t>(header.size()));
  out_ << prefix << header;
}

void RoutingTraceWriter::append(const RoutingRecord& record) {
  if (static_cast<int64_t>(record.choices.size()) != shape_.choices_per_token()) {
    fail(ErrorKind::internal, "routing trace: expected {} choices a token, found {}",
         shape_.choices_per_token(), record.choices.size());
  }
  bytes_.clear();
  put(bytes_, record.sequence);
  put(bytes_, record.position);
  put(bytes_, record.token);
  for (const ExpertId expert : record.choices) put(bytes_, static_cast<uint16_t>(expert.value));
  if (!out_.write(bytes_.data(), static_cast<std::streamsize>(bytes_.size()))) {
    fail(ErrorKind::internal, "routing trace: writing a record failed; is the disk full?");
  }
}

RoutingTraceReader::RoutingTraceReader(const std::filesystem::path& path)
    : file_(path), what_(path_in_quotes(path)), size_(file_->size()) {
  read_header();
}

RoutingTraceReader::RoutingTraceReader(std::span<const std::byte> bytes, std::string what)
    : bytes_(bytes), what_(std::move(what)), size_(bytes.size()) {
  read_header();
}

void RoutingTraceReader::read_at(uint64_t offset, std::span<std::byte> out) const {
  if (file_) {
    file_->read_at(offset, out);
  } else if (!out.empty()) {
    std::memcpy(out.data(), bytes_.data() + offset, out.size());
  }
}

void RoutingTraceReader::read_header() {
  std::byte prefix[kPrefixBytes] = {};
  if (size_ >= kPrefixBytes) read_at(0, prefix);
  if (std::memcmp(prefix, kMagic.data(), kMagic.size()) != 0) {
    fail(ErrorKind::bad_model, "{}: expected a routing trace, which begins with {}", what_, kMagic);
  }
  const uint64_t header_bytes = get<uint32_t>(prefix + kMagic.size());
  if (header_bytes > kMaxHeaderBytes || header_bytes > size_ - kPrefixBytes) {
    fail(ErrorKind::bad_model, "{}: expected a header of at most {} bytes, found the length {}",
         what_, std::min(kMaxHeaderBytes, size_ - kPrefixBytes), header_bytes);
  }
  std::string header(header_bytes, '\0');
  read_at(kPrefixBytes, std::as_writable_bytes(std::span(header)));
  shape_ = parse_header(header, what_);

  data_begin_ = offset_ = kPrefixBytes + header_bytes;
  record_bytes_ = kFixedRecordBytes + 2 * static_cast<uint64_t>(shape_.choices_per_token());
  if (const uint64_t torn = (size_ - data_begin_) % record_bytes_; torn != 0) {
    fail(ErrorKind::bad_model,
         "{}: the record at offset {} is torn: expected {} bytes, found {}; cut the file there to "
         "use the rest",
         what_, size_ - torn, record_bytes_, torn);
  }
  int32_t most_experts = 0;
  for (const RoutedLayer& layer : shape_.layers) {
    most_experts = std::max(most_experts, layer.experts);
  }
  seen_in_.assign(static_cast<size_t>(most_experts), 0);
}

void RoutingTraceReader::refill() {
  const uint64_t piece = std::max<uint64_t>(1, kPieceBytes / record_bytes_) * record_bytes_;
  buffer_.resize(std::min(piece, size_ - offset_));
  buffer_next_ = 0;
  read_at(offset_, buffer_);
}

bool RoutingTraceReader::next(RoutingRecord& record) {
  if (offset_ == size_) return false;
  if (buffer_next_ == buffer_.size()) refill();
  const std::byte* from = buffer_.data() + buffer_next_;
  record.sequence = get<uint32_t>(from);
  record.position = get<uint32_t>(from + 4);
  record.token = get<int32_t>(from + 8);
  read_choices(from + kFixedRecordBytes, record.choices);
  buffer_next_ += record_bytes_;
  offset_ += record_bytes_;
  return true;
}

void RoutingTraceReader::read_choices(const std::byte* from, std::vector<ExpertId>& choices) {
  choices.clear();
  for (const RoutedLayer& layer : shape_.layers) {
    ++choice_lists_;
    for (int32_t k = 0; k < layer.top_k; ++k, from += 2) {
      const auto expert = get<uint16_t>(from);
      if (expert >= layer.experts) {
        fail(ErrorKind::bad_model,
             "{}: record at offset {}, layer {}: expected an expert below {}, found {}", what_,
             offset_, layer.layer.value, layer.experts, expert);
      }
      if (std::exchange(seen_in_[expert], choice_lists_) == choice_lists_) {
        fail(ErrorKind::bad_model, "{}: record at offset {}, layer {}: expert {} is named twice",
             what_, offset_, layer.layer.value, expert);
      }
      choices.push_back(ExpertId(expert));
    }
  }
}

}  // namespace klotski
