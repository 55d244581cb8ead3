// The file form of a routing-path predictor, docs/path-predictor.md.

#include <bit>
#include <cmath>
#include <cstring>

#include "base/bytes.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/new_file.h"
#include "experts/path_network.h"

namespace klotski {

static_assert(std::endian::native == std::endian::little, "files are little-endian");

namespace {

constexpr std::string_view kPathMagic = "KLPATH01";
constexpr uint64_t kPathPrefixBytes = 12;           // magic and the length of the header
constexpr uint64_t kMaxPathHeaderBytes = 1 * kMiB;  // thousands of layers
constexpr uint64_t kMaxPathFileBytes = 4 * kGiB;
constexpr int64_t kMaxPathWidth = 4096;
constexpr int64_t kMaxPathInner = 16384;
constexpr int64_t kMaxPathChunk = 4096;
constexpr int64_t kMaxKnownTokens = 1 << 24;

// Takes `count` numbers from the front of the bytes, whose size was checked before.
template <typename Number>
void take(std::span<const std::byte>& bytes, Number* to, size_t count) {
  if (count == 0) return;  // `to` may be null, which memcpy does not allow
  std::memcpy(to, bytes.data(), count * sizeof(Number));
  bytes = bytes.subspan(count * sizeof(Number));
}

template <typename Number>
void put_all(std::string& bytes, const std::vector<Number>& numbers) {
  bytes.append(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(Number));
}

// The shape without its tokens, whose number goes to `known`.
PathNetworkShape parse_path_header(const std::string& text, const std::string& what,
                                   int64_t& known) {
  const Json document = parse_json(text, what);
  const JsonFields fields(document, what);
  fields.integer("version", 1, 1);
  PathNetworkShape shape;
  shape.routing = shape_from_json(fields, what);
  shape.width = fields.integer("width", 1, kMaxPathWidth);
  shape.heads = fields.integer("heads", 1, shape.width);
  shape.inner = fields.integer("inner", 1, kMaxPathInner);
  shape.chunk = fields.integer("chunk", 1, kMaxPathChunk);
  known = fields.integer("known_tokens", 0, kMaxKnownTokens);
  check_shape(shape, what);
  return shape;
}

// Takes the magic and the header.
std::string take_path_header(std::span<const std::byte>& bytes, const std::string& what) {
  if (bytes.size() < kPathPrefixBytes ||
      std::memcmp(bytes.data(), kPathMagic.data(), kPathMagic.size()) != 0) {
    fail(ErrorKind::bad_model, "{}: expected a routing-path predictor, which begins with {}", what,
         kPathMagic);
  }
  bytes = bytes.subspan(kPathMagic.size());
  uint32_t header_bytes = 0;
  take(bytes, &header_bytes, 1);
  if (header_bytes > std::min<uint64_t>(kMaxPathHeaderBytes, bytes.size())) {
    fail(ErrorKind::bad_model, "{}: expected a header of at most {} bytes, found the length {}",
         what, std::min<uint64_t>(kMaxPathHeaderBytes, bytes.size()), header_bytes);
  }
  std::string header(header_bytes, '\0');
  take(bytes, header.data(), header.size());
  return header;
}

void check_known_tokens(const std::vector<TokenId>& tokens, const std::string& what) {
  for (size_t i = 1; i < tokens.size(); ++i) {
    if (tokens[i] > tokens[i - 1]) continue;
    fail(ErrorKind::bad_model, "{}: expected known tokens in rising order, found {} after {}", what,
         tokens[i], tokens[i - 1]);
  }
}

}  // namespace

void check_shape(const PathNetworkShape& shape, const std::string& what) {
  check_shape(shape.routing, what);
  const auto within = [](int64_t value, int64_t most) { return value >= 1 && value <= most; };
  if (!within(shape.width, kMaxPathWidth) || !within(shape.inner, kMaxPathInner) ||
      !within(shape.chunk, kMaxPathChunk) || !within(shape.heads, shape.width) ||
      shape.width % shape.heads != 0) {
    fail(ErrorKind::bad_model,
         "{}: expected a width of at most {} that the heads divide, an inner width of at most {} "
         "and chunks of at most {} tokens, found width {}, {} heads, inner width {}, chunks of {}",
         what, kMaxPathWidth, kMaxPathInner, kMaxPathChunk, shape.width, shape.heads, shape.inner,
         shape.chunk);
  }
}

std::string PathNetwork::bytes() const {
  Json document = shape_as_json(shape_.routing);
  document["version"] = 1;
  document["width"] = shape_.width;
  document["heads"] = shape_.heads;
  document["inner"] = shape_.inner;
  document["chunk"] = shape_.chunk;
  document["known_tokens"] = shape_.known_tokens.size();
  // A model's name may be a path, which need not be UTF-8.
  const std::string header = document.dump(-1, ' ', false, Json::error_handler_t::replace);
  std::string all(kPathMagic);
  put_all(all, std::vector<uint32_t>{static_cast<uint32_t>(header.size())});
  all += header;
  put_all(all, shape_.known_tokens);
  for (const neural::Parameter* parameter : parameters()) put_all(all, parameter->value.values);
  return all;
}

PathNetwork PathNetwork::parse(std::span<const std::byte> bytes, const std::string& what) {
  int64_t known = 0;
  PathNetworkShape shape = parse_path_header(take_path_header(bytes, what), what, known);
  // No product overflows: a shape has at most 2^32 experts and the width is at most 2^12.
  const int64_t numbers = shape.parameters() + known * (shape.width + 1);
  if (static_cast<uint64_t>(numbers) != bytes.size() / 4 || bytes.size() % 4 != 0) {
    fail(ErrorKind::bad_model, "{}: expected {} bytes after the header, found {}; train it anew",
         what, 4 * numbers, bytes.size());
  }
  shape.known_tokens.resize(static_cast<size_t>(known));
  take(bytes, shape.known_tokens.data(), shape.known_tokens.size());
  check_known_tokens(shape.known_tokens, what);
  PathNetwork network(std::move(shape));
  for (neural::Parameter* parameter : network.parameters()) {
    std::vector<float>& values = parameter->value.values;
    take(bytes, values.data(), values.size());
    for (const float value : values) {
      if (std::isfinite(value)) continue;
      fail(ErrorKind::bad_model, "{}: {}: expected finite weights, found {}; train it anew", what,
           parameter->name, value);
    }
  }
  return network;
}

void PathNetwork::save(const std::filesystem::path& path) const {
  NewFile file(path);
  file.write(bytes());
  file.commit();
}

PathNetwork PathNetwork::load(const std::filesystem::path& path, const RoutingTraceShape& routing) {
  const std::string text = read_text_file(path, kMaxPathFileBytes);
  PathNetwork network = parse(std::as_bytes(std::span(text)), path_in_quotes(path));
  if (network.shape_.routing.layers != routing.layers) {
    fail(ErrorKind::bad_model,
         "{}: expected a predictor for the routed layers of this model, found one trained for {}; "
         "train one with `klotski train-predictor` on traces of this model",
         path_in_quotes(path), in_quotes(network.shape_.routing.model));
  }
  return network;
}

}  // namespace klotski
