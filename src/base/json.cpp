#include "base/json.h"

#include <cmath>

namespace klotski {

namespace {

// Builds a document while counting depth and refusing duplicate keys. The parser of the library
// keeps its own stack, so depth costs heap, never the machine stack.
template <typename Document>
class StrictBuilder {
 public:
  using number_integer_t = typename Document::number_integer_t;
  using number_unsigned_t = typename Document::number_unsigned_t;
  using number_float_t = typename Document::number_float_t;
  using string_t = typename Document::string_t;
  using binary_t = typename Document::binary_t;

  explicit StrictBuilder(int max_depth) : max_depth_(max_depth) {}

  bool null() { return add(nullptr); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(number_integer_t value) { return add(value); }
  bool number_unsigned(number_unsigned_t value) { return add(value); }
  bool number_float(number_float_t value, const string_t&) { return add(value); }
  bool string(string_t& value) { return add(std::move(value)); }
  bool binary(binary_t&) { return false; }

  bool start_object(size_t) { return open(Document::object()); }
  bool key(string_t& name) {
    if (kLinearLookup && open_.back()->size() >= kMaxOrderedKeys) {
      error_ = fmt::format("more than {} keys in one object", kMaxOrderedKeys);
      return false;
    }
    if (open_.back()->contains(name)) {
      error_ = fmt::format("the key {} appears twice in one object", in_quotes(name));
      return false;
    }
    key_ = std::move(name);
    return true;
  }
  bool end_object() { return close(); }
  bool start_array(size_t) { return open(Document::array()); }
  bool end_array() { return close(); }

  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception& error) {
    // The library's text repeats the position and quotes input; its last clause names the mistake.
    const std::string_view message = error.what();
    const size_t clause = message.find("syntax error");
    error_ =
        fmt::format("not valid JSON at byte {}: {}", position,
                    in_quotes(message.substr(clause == std::string_view::npos ? 0 : clause), 120));
    return false;
  }

  Document document;
  const std::string& error() const { return error_; }

 private:
  // Objects that keep the order of their keys search them one by one.
  static constexpr bool kLinearLookup = std::is_same_v<Document, OrderedJson>;
  static constexpr size_t kMaxOrderedKeys = 4096;

  template <typename Value>
  Document* place(Value&& value) {
    if (open_.empty()) {
      document = std::forward<Value>(value);
      return &document;
    }
    Document& parent = *open_.back();
    if (parent.is_array()) {
      parent.push_back(std::forward<Value>(value));
      return &parent.back();
    }
    Document& slot = parent[std::move(key_)];
    slot = std::forward<Value>(value);
    return &slot;
  }

  template <typename Value>
  bool add(Value&& value) {
    place(std::forward<Value>(value));
    return true;
  }

  bool open(Document container) {
    if (static_cast<int>(open_.size()) >= max_depth_) {
      error_ = fmt::format("nested deeper than {} levels", max_depth_);
      return false;
    }
    open_.push_back(place(std::move(container)));
    return true;
  }

  bool close() {
    open_.pop_back();
    return true;
  }

  int max_depth_;
  std::vector<Document*> open_;
  string_t key_;
  std::string error_;
};

template <typename Document>
Document parse_strict(std::string_view text, std::string_view what, ErrorKind kind, int max_depth) {
  if (text.starts_with("\xEF\xBB\xBF")) {
    fail(kind, "{}: expected JSON, found a byte-order mark at byte 0", what);
  }
  // The library takes a NUL for the end of its input.
  if (const size_t nul = text.find('\0'); nul != std::string_view::npos) {
    fail(kind, "{}: expected JSON, found a NUL at byte {}", what, nul);
  }
  StrictBuilder<Document> builder(max_depth);
  if (!Document::sax_parse(text.begin(), text.end(), &builder)) {
    fail(kind, "{}: {}", what, builder.error());
  }
  return std::move(builder.document);
}

std::string shown(const Json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return fmt::format("an array of {}", value.size());
  if (value.is_string()) return in_quotes(value.get_ref<const std::string&>());
  return value.dump();
}

}  // namespace

Json parse_json(std::string_view text, std::string_view what, ErrorKind kind, int max_depth) {
  return parse_strict<Json>(text, what, kind, max_depth);
}

OrderedJson parse_ordered_json(std::string_view text, std::string_view what, ErrorKind kind,
                               int max_depth) {
  return parse_strict<OrderedJson>(text, what, kind, max_depth);
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
