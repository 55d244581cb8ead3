#include "weights/header_handler.h"

#include <algorithm>

namespace klotski {

HeaderHandler::HeaderHandler(std::string_view what, size_t expected_tensors) : what_(what) {
  entries_.reserve(expected_tensors);
}

std::string HeaderHandler::place() const {
  const auto field = [&](std::string_view name) {
    return fmt::format("tensor {}{}", in_quotes(entries_.back().name), name);
  };
  switch (state_) {
    case State::document:
    case State::names:
      return "the header";
    case State::tensor_value:
    case State::fields:
      return field("");
    case State::dtype:
      return field(": dtype");
    case State::shape:
    case State::shape_array:
      return field(": shape");
    case State::offsets:
    case State::offsets_array:
      return field(": data_offsets");
    case State::metadata_value:
    case State::metadata:
      return "__metadata__";
    case State::metadata_text:
      return fmt::format("__metadata__: {}", in_quotes(metadata_keys_.back()));
  }
  return "the header";
}

void HeaderHandler::refuse(std::string_view found) const {
  std::string_view expected = "an object";
  if (state_ == State::dtype || state_ == State::metadata_text) expected = "a string";
  if (state_ == State::shape) expected = "an array of sizes";
  if (state_ == State::shape_array) expected = "a whole number from 0 to 2^63-1";
  if (state_ == State::offsets) expected = "an array of two offsets";
  if (state_ == State::offsets_array) expected = "a whole number from 0 to 2^64-1";
  fail(ErrorKind::bad_model, "{}: {}: expected {}, found {}", what_, place(), expected, found);
}

bool HeaderHandler::null() {
  // Some writers put null where they have no metadata; the reference reader accepts it.
  if (state_ != State::metadata_value) refuse("null");
  state_ = State::names;
  return true;
}

bool HeaderHandler::boolean(bool value) { refuse(value ? "true" : "false"); }

bool HeaderHandler::number_integer(int64_t value) {
  refuse(value == 0 ? "-0" : std::to_string(value));  // only numbers with a sign come here
}

bool HeaderHandler::number_float(double, const std::string& text) { refuse(in_quotes(text, 40)); }

bool HeaderHandler::number_unsigned(uint64_t value) {
  if (state_ == State::shape_array) {
    if (value > static_cast<uint64_t>(INT64_MAX)) refuse(std::to_string(value));
    Shape& shape = entries_.back().shape;
    if (shape.size() == kMaxTensorRank) {
      fail(ErrorKind::bad_model, "{}: {}: expected at most {} dimensions, found more", what_,
           place(), kMaxTensorRank);
    }
    shape.push_back(static_cast<int64_t>(value));
  } else if (state_ == State::offsets_array && offsets_.size() < 2) {
    offsets_.push_back(value);
  } else if (state_ == State::offsets_array) {
    fail(ErrorKind::bad_model, "{}: {}: expected two offsets, found more", what_, place());
  } else {
    refuse(std::to_string(value));
  }
  return true;
}

bool HeaderHandler::string(std::string& value) {
  if (state_ == State::metadata_text) {
    state_ = State::metadata;
  } else if (state_ == State::dtype) {
    const auto dtype = dtype_from_name(value);
    if (!dtype) {
      fail(ErrorKind::bad_model,
           "{}: {}: expected a type of the safetensors format such as BF16, found {}", what_,
           place(), in_quotes(value));
    }
    entries_.back().dtype = *dtype;
    state_ = State::fields;
  } else {
    refuse(in_quotes(value));
  }
  return true;
}

bool HeaderHandler::binary(nlohmann::json::binary_t&) { refuse("binary data"); }

bool HeaderHandler::start_object(size_t) {
  if (state_ == State::document) {
    state_ = State::names;
  } else if (state_ == State::tensor_value) {
    state_ = State::fields;
    seen_.reset();
    offsets_.clear();
  } else if (state_ == State::metadata_value) {
    state_ = State::metadata;
  } else {
    refuse("an object");
  }
  return true;
}

bool HeaderHandler::key(std::string& name) {
  if (state_ == State::fields) {
    start_tensor_field(name);
  } else if (state_ == State::metadata) {
    start_metadata_entry(name);
  } else if (name != "__metadata__") {
    if (name.size() > kMaxTensorNameBytes) {
      fail(ErrorKind::bad_model, "{}: tensor {}: expected a name of at most {} bytes, found {}",
           what_, in_quotes(name), kMaxTensorNameBytes, name.size());
    }
    entries_.emplace_back().name = name;  // copied: the parser goes on to use its buffer
    state_ = State::tensor_value;
  } else {
    if (metadata_seen_) {
      fail(ErrorKind::bad_model, "{}: the key '__metadata__' appears twice", what_);
    }
    metadata_seen_ = true;
    state_ = State::metadata_value;
  }
  return true;
}

void HeaderHandler::start_tensor_field(const std::string& name) {
  const Field field = name == "dtype"          ? kDType
                      : name == "shape"        ? kShape
                      : name == "data_offsets" ? kOffsets
                                               : kFieldCount;
  if (field == kFieldCount) {
    fail(ErrorKind::bad_model, "{}: {}: expected only dtype, shape and data_offsets, found {}",
         what_, place(), in_quotes(name));
  }
  if (seen_[field]) {
    fail(ErrorKind::bad_model, "{}: {}: the key {} appears twice", what_, place(), in_quotes(name));
  }
  seen_.set(field);
  state_ = field == kDType ? State::dtype : field == kShape ? State::shape : State::offsets;
}

void HeaderHandler::start_metadata_entry(std::string& name) {
  if (metadata_keys_.size() == kMaxMetadataKeys) {
    fail(ErrorKind::bad_model, "{}: __metadata__: expected at most {} keys, found more", what_,
         kMaxMetadataKeys);
  }
  metadata_keys_.push_back(name);
  state_ = State::metadata_text;
}

bool HeaderHandler::end_object() {
  if (state_ == State::fields) {
    finish_tensor();
    state_ = State::names;
  } else if (state_ == State::metadata) {
    finish_metadata();
    state_ = State::names;
  } else {
    state_ = State::document;
  }
  return true;
}

bool HeaderHandler::start_array(size_t) {
  if (state_ == State::shape) {
    state_ = State::shape_array;
  } else if (state_ == State::offsets) {
    state_ = State::offsets_array;
  } else {
    refuse("an array");
  }
  return true;
}

bool HeaderHandler::end_array() {
  state_ = State::fields;
  return true;
}

void HeaderHandler::finish_tensor() {
  TensorEntry& entry = entries_.back();
  if (!seen_.all()) {
    fail(ErrorKind::bad_model, "{}: {}: expected dtype, shape and data_offsets, found no {}", what_,
         place(),
         !seen_[kDType]   ? "dtype"
         : !seen_[kShape] ? "shape"
                          : "data_offsets");
  }
  if (offsets_.size() != 2 || offsets_[0] > offsets_[1]) {
    fail(ErrorKind::bad_model,
         "{}: {}: data_offsets: expected a begin and an end not before it, found {}", what_,
         place(),
         offsets_.size() == 2 ? fmt::format("[{}, {}]", offsets_[0], offsets_[1])
                              : fmt::format("{} numbers", offsets_.size()));
  }
  uint64_t bytes = 0;
  if (!byte_count(entry.shape, entry.dtype, &bytes)) {
    fail(ErrorKind::bad_model,
         "{}: {}: expected a size in whole bytes below 2^61, found shape {} of {}", what_, place(),
         format_shape(entry.shape), dtype_name(entry.dtype));
  }
  if (bytes != offsets_[1] - offsets_[0]) {
    fail(ErrorKind::bad_model,
         "{}: {}: expected {} bytes for shape {} of {}, found data_offsets [{}, {}]", what_,
         place(), bytes, format_shape(entry.shape), dtype_name(entry.dtype), offsets_[0],
         offsets_[1]);
  }
  entry.offset = offsets_[0];
  entry.bytes = bytes;
}

void HeaderHandler::finish_metadata() {
  std::sort(metadata_keys_.begin(), metadata_keys_.end());
  const auto twice = std::adjacent_find(metadata_keys_.begin(), metadata_keys_.end());
  if (twice != metadata_keys_.end()) {
    fail(ErrorKind::bad_model, "{}: __metadata__: the key {} appears twice", what_,
         in_quotes(*twice));
  }
}

bool HeaderHandler::parse_error(size_t position, const std::string&,
                                const nlohmann::detail::exception& error) {
  // The library's text repeats the position; its last clause names the mistake.
  const std::string_view message = error.what();
  const size_t clause = message.find("syntax error");
  fail(ErrorKind::bad_model, "{}: the header is not valid JSON at byte {}: {}", what_, position,
       in_quotes(message.substr(clause == std::string_view::npos ? 0 : clause), 120));
}

}  // namespace klotski
