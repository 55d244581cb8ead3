#include "base/json.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <iterator>
#include <utility>

#include "base/bytes.h"
#include "base/memory_limit.h"

namespace klotski {

namespace {

// Bytes that the allocator takes for a block: a header of 8, in steps of 16.
constexpr uint64_t heap_bytes(uint64_t bytes) {
  return std::max<uint64_t>(32, (bytes + 8 + 15) / 16 * 16);
}

uint64_t heap_bytes(const std::string& text) {
  static const size_t kInPlace = std::string().capacity();
  return text.capacity() > kInPlace ? heap_bytes(text.capacity() + 1) : 0;
}

// Bytes that the library's lexer takes, by a walk that does not understand the text. It keeps a
// token in one buffer, and all it read since the last string, number or word began in another one:
// brackets and spaces too. Both grow to twice their size.
uint64_t lexer_bytes(std::string_view text) {
  size_t longest_token = 0;
  size_t longest_stretch = 0;
  size_t begin = 0;  // of the last string, number or word
  bool in_word = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool between = c == ',' || c == ':' || c == '[' || c == ']' || c == '{' || c == '}' ||
                         c == ' ' || c == '\t' || c == '\n' || c == '\r';
    if (!between && !in_word) {
      longest_stretch = std::max(longest_stretch, i - begin);
      begin = i;
    }
    in_word = !between && c != '"';
    if (c == '"') {
      for (++i; i < text.size() && text[i] != '"'; ++i) i += text[i] == '\\';
    }
    if (!between) longest_token = std::max(longest_token, std::min(i, text.size()) - begin);
  }
  longest_stretch = std::max(longest_stretch, text.size() - begin);
  return 2 * (longest_token + longest_stretch);
}

// Counts what reading takes and compares it with the memory there is, which is asked for once the
// text or the count is large: the answer costs more than a small document.
class JsonMemory {
 public:
  JsonMemory(std::string_view text, std::string_view what, std::optional<uint64_t> memory)
      : what_(what), lexer_bytes_(lexer_bytes(text)), limit_(memory) {
    if (text.size() > kUnasked) ask();
    if (limit_) require_memory(lexer_bytes_, *limit_, what_);
  }

  // False once there is less memory than was counted.
  bool add(uint64_t bytes) {
    bytes_ += bytes;
    if (bytes_ > kUnasked) ask();
    return !limit_ || needed() <= *limit_;
  }
  uint64_t needed() const { return lexer_bytes_ + bytes_; }
  void require() const {
    if (limit_) require_memory(needed(), *limit_, what_);
  }

 private:
  static constexpr uint64_t kUnasked = kMiB;

  void ask() {
    if (!limit_) limit_ = allowed_memory_left() + bytes_;
  }

  std::string_view what_;
  uint64_t lexer_bytes_;
  std::optional<uint64_t> limit_;
  uint64_t bytes_ = 0;
};

// Builds a document from the parser's events, innermost values first, so that every container is
// made at its final size. Depth costs heap, never the machine stack.
template <typename Document>
class StrictBuilder {
 public:
  using number_integer_t = typename Document::number_integer_t;
  using number_unsigned_t = typename Document::number_unsigned_t;
  using number_float_t = typename Document::number_float_t;
  using string_t = typename Document::string_t;
  using binary_t = typename Document::binary_t;

  StrictBuilder(const JsonReading& reading, JsonMemory& memory)
      : reading_(reading), memory_(memory) {}

  bool null() { return add(nullptr); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(number_integer_t value) { return add(value); }
  bool number_unsigned(number_unsigned_t value) { return add(value); }
  bool number_float(number_float_t value, const string_t&) { return add(value); }
  bool string(string_t& value) {
    count(heap_bytes(sizeof(string_t)) + heap_bytes(value));
    return add(std::move(value));
  }
  bool binary(binary_t&) { return false; }

  bool start_object(size_t) { return open(sizeof(Object)); }
  bool key(string_t& name) {
    if (!skips_ && depth_ == 1 && !is_wanted(name)) skips_ = true;
    count(kKeyBytes + heap_bytes(name));
    if (!builds()) return true;
    if (kOrdered && keys_.size() - open_.back().keys == kMaxOrderedKeys) {
      error_ = fmt::format("more than {} keys in one object", kMaxOrderedKeys);
      return false;
    }
    keys_.push_back(std::move(name));
    return true;
  }
  bool end_object() {
    return close([this] { return taken_object(); });
  }
  bool start_array(size_t) { return open(sizeof(Array)); }
  bool end_array() {
    return close([this] { return Document(taken_array()); });
  }

  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception& error) {
    // The library's text repeats the position and quotes input; its last clause names the mistake.
    const std::string_view message = error.what();
    const size_t clause = message.find("syntax error");
    error_ =
        fmt::format("not valid JSON at byte {}: {}", position,
                    in_quotes(message.substr(clause == std::string_view::npos ? 0 : clause), 120));
    return false;
  }

  Document take() { return std::move(values_.front()); }
  const std::string& error() const { return error_; }

 private:
  using Array = typename Document::array_t;
  using Object = typename Document::object_t;
  // Objects that keep the order of their keys search them one by one.
  static constexpr bool kOrdered = std::is_same_v<Document, OrderedJson>;
  static constexpr size_t kMaxOrderedKeys = 4096;
  // A value lies among those of open containers before it lies in its own, and destroying a
  // container takes as much again as its values: all of it stays with the allocator.
  static constexpr uint64_t kCopies = 3;
  // A key among those of open containers, where it is sorted, and in its object, where its value is
  // not counted; an object that sorts its keys has a node with three pointers and a colour for it.
  static constexpr uint64_t kKeyBytes =
      sizeof(string_t) + sizeof(void*) +
      (kOrdered ? sizeof(string_t)
                : heap_bytes(4 * sizeof(void*) + sizeof(string_t) + sizeof(Document)) -
                      sizeof(Document));

  struct Open {
    size_t values;  // values and keys of the containers around it
    size_t keys;
  };

  bool builds() const { return !skips_ && !over_; }

  bool is_wanted(const string_t& name) const {
    const auto& wanted = reading_.wanted;
    return wanted.empty() || std::find(wanted.begin(), wanted.end(), name) != wanted.end();
  }

  void count(uint64_t bytes) {
    if (skips_ || memory_.add(bytes) || over_) return;
    over_ = true;  // what follows is counted only
    values_.clear();
    keys_.clear();
  }

  template <typename Value>
  bool add(Value&& value) {
    count(kCopies * sizeof(Document));
    if (builds()) values_.emplace_back(std::forward<Value>(value));
    end_value();
    return true;
  }

  // The value of a key that is not wanted has ended where only the outermost object is open.
  void end_value() {
    if (depth_ == 1) skips_ = false;
  }

  bool open(size_t container_bytes) {
    if (depth_ >= reading_.max_depth) {
      error_ = fmt::format("nested deeper than {} levels", reading_.max_depth);
      return false;
    }
    ++depth_;
    count(kCopies * sizeof(Document) + heap_bytes(container_bytes) + heap_bytes(0));
    if (builds()) open_.push_back({values_.size(), keys_.size()});
    return true;
  }

  template <typename Taken>
  bool close(const Taken& taken) {
    --depth_;
    if (builds()) {
      Document container = taken();
      values_.resize(open_.back().values);
      keys_.resize(open_.back().keys);
      open_.pop_back();
      values_.push_back(std::move(container));
    }
    end_value();
    return error_.empty();
  }

  Array taken_array() {
    const auto first = values_.begin() + static_cast<std::ptrdiff_t>(open_.back().values);
    return Array(std::make_move_iterator(first), std::make_move_iterator(values_.end()));
  }

  Document taken_object() {
    const auto [first_value, first_key] = open_.back();
    refuse_equal_keys(first_key);
    Object object;
    if constexpr (kOrdered) object.reserve(keys_.size() - first_key);
    for (size_t i = 0; first_key + i < keys_.size() && error_.empty(); ++i) {
      string_t& name = keys_[first_key + i];
      Document& value = values_[first_value + i];
      if constexpr (kOrdered) {
        object.emplace_back(std::move(name), std::move(value));  // emplace() would search
      } else {
        object.emplace(std::move(name), std::move(value));
      }
    }
    return Document(std::move(object));
  }

  // Sorting cannot be slowed down by keys made to collide, as a hash table could.
  void refuse_equal_keys(size_t first) {
    std::vector<const string_t*> sorted;
    sorted.reserve(keys_.size() - first);
    for (size_t i = first; i < keys_.size(); ++i) sorted.push_back(&keys_[i]);
    std::sort(sorted.begin(), sorted.end(),
              [](const string_t* a, const string_t* b) { return *a < *b; });
    const auto twice =
        std::adjacent_find(sorted.begin(), sorted.end(),
                           [](const string_t* a, const string_t* b) { return *a == *b; });
    if (twice == sorted.end()) return;
    error_ = fmt::format("the key {} appears twice in one object", in_quotes(**twice));
  }

  const JsonReading& reading_;
  JsonMemory& memory_;
  int depth_ = 0;       // containers that are open
  bool over_ = false;   // more memory was counted than there is
  bool skips_ = false;  // in the value of a key that is not wanted
  // Values and keys of open containers. Deques grow without copying what they have.
  std::deque<Document> values_;
  std::deque<string_t> keys_;
  std::vector<Open> open_;
  std::string error_;
};

template <typename Document>
Document parse_strict(std::string_view text, std::string_view what, ErrorKind kind,
                      const JsonReading& reading) {
  if (text.starts_with("\xEF\xBB\xBF")) {
    fail(kind, "{}: expected JSON, found a byte-order mark at byte 0", what);
  }
  // The library takes a NUL for the end of its input.
  if (const size_t nul = text.find('\0'); nul != std::string_view::npos) {
    fail(kind, "{}: expected JSON, found a NUL at byte {}", what, nul);
  }
  JsonMemory memory(text, what, reading.memory);
  StrictBuilder<Document> builder(reading, memory);
  if (!Document::sax_parse(text.begin(), text.end(), &builder)) {
    fail(kind, "{}: {}", what, builder.error());
  }
  memory.require();
  if (reading.bytes != nullptr) *reading.bytes = memory.needed();
  return builder.take();
}

std::string shown(const Json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return fmt::format("an array of {}", value.size());
  if (value.is_string()) return in_quotes(value.get_ref<const std::string&>());
  return value.dump();
}

}  // namespace

Json parse_json(std::string_view text, std::string_view what, ErrorKind kind,
                const JsonReading& reading) {
  return parse_strict<Json>(text, what, kind, reading);
}

OrderedJson parse_ordered_json(std::string_view text, std::string_view what, ErrorKind kind,
                               const JsonReading& reading) {
  return parse_strict<OrderedJson>(text, what, kind, reading);
}

JsonFields::JsonFields(const Json& object, std::string what, std::string path)
    : object_(&object), what_(std::move(what)), path_(std::move(path)) {
  if (!object.is_object()) {
    fail(ErrorKind::bad_model, "{}: {}: expected an object, found {}", what_,
         path_.empty() ? "the file" : path_, shown(object));
  }
}

const Json* JsonFields::find(std::string_view key) const {
  const auto found = object_->find(key);
  return found == object_->end() || found->is_null() ? nullptr : &*found;
}

void JsonFields::refuse(std::string_view key, std::string_view expected) const {
  const Json* value = find(key);
  fail(ErrorKind::bad_model, "{}: {}{}{}: expected {}, found {}", what_, path_,
       path_.empty() ? "" : ".", key, expected, value ? shown(*value) : "nothing");
}

const Json& JsonFields::require(std::string_view key, std::string_view expected) const {
  const Json* value = find(key);
  if (!value) refuse(key, expected);
  return *value;
}

int64_t JsonFields::checked_integer(std::string_view key, const Json& value, int64_t least,
                                    int64_t most) const {
  const bool fits = value.is_number_integer() &&
                    (!value.is_number_unsigned() || value.get<uint64_t>() <= INT64_MAX) &&
                    value.get<int64_t>() >= least && value.get<int64_t>() <= most;
  if (!fits) refuse(key, fmt::format("an integer from {} to {}", least, most));
  return value.get<int64_t>();
}

double JsonFields::checked_number(std::string_view key, const Json& value, double least,
                                  double most) const {
  const bool fits = value.is_number() && std::isfinite(value.get<double>()) &&
                    value.get<double>() >= least && value.get<double>() <= most;
  if (!fits) refuse(key, fmt::format("a number from {} to {}", least, most));
  return value.get<double>();
}

int64_t JsonFields::integer(std::string_view key, int64_t least, int64_t most) const {
  return checked_integer(key, require(key, fmt::format("an integer from {} to {}", least, most)),
                         least, most);
}

int64_t JsonFields::integer_or(std::string_view key, int64_t fallback, int64_t least,
                               int64_t most) const {
  const Json* value = find(key);
  return value ? checked_integer(key, *value, least, most) : fallback;
}

double JsonFields::number(std::string_view key, double least, double most) const {
  return checked_number(key, require(key, fmt::format("a number from {} to {}", least, most)),
                        least, most);
}

double JsonFields::number_or(std::string_view key, double fallback, double least,
                             double most) const {
  const Json* value = find(key);
  return value ? checked_number(key, *value, least, most) : fallback;
}

bool JsonFields::boolean_or(std::string_view key, bool fallback) const {
  const Json* value = find(key);
  if (value && !value->is_boolean()) refuse(key, "true or false");
  return value ? value->get<bool>() : fallback;
}

std::string JsonFields::string(std::string_view key) const {
  const Json& value = require(key, "a string");
  if (!value.is_string()) refuse(key, "a string");
  return value.get<std::string>();
}

std::string JsonFields::string_or(std::string_view key, std::string_view fallback) const {
  return has(key) ? string(key) : std::string(fallback);
}

std::optional<std::vector<int64_t>> JsonFields::integers(std::string_view key, int64_t least,
                                                         int64_t most) const {
  const Json* value = find(key);
  if (!value) return std::nullopt;
  if (!value->is_array()) refuse(key, "an array of integers");
  std::vector<int64_t> result;
  result.reserve(value->size());
  for (const Json& element : *value) {
    result.push_back(checked_integer(key, element, least, most));
  }
  return result;
}

std::optional<std::vector<double>> JsonFields::numbers(std::string_view key, double least,
                                                       double most) const {
  const Json* value = find(key);
  if (!value) return std::nullopt;
  if (!value->is_array()) refuse(key, "an array of numbers");
  std::vector<double> result;
  result.reserve(value->size());
  for (const Json& element : *value) result.push_back(checked_number(key, element, least, most));
  return result;
}

std::optional<std::vector<std::string>> JsonFields::strings(std::string_view key) const {
  const Json* value = find(key);
  if (!value) return std::nullopt;
  if (!value->is_array()) refuse(key, "an array of strings");
  std::vector<std::string> result;
  result.reserve(value->size());
  for (const Json& element : *value) {
    if (!element.is_string()) refuse(key, "an array of strings");
    result.push_back(element.get<std::string>());
  }
  return result;
}

std::optional<JsonFields> JsonFields::object(std::string_view key) const {
  const Json* value = find(key);
  if (!value) return std::nullopt;
  if (!value->is_object()) refuse(key, "an object");
  return JsonFields(*value, what_,
                    path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key));
}

}  // namespace klotski
