#pragma once

#include <bitset>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "weights/safetensors.h"

namespace klotski {

// Receives the events of the JSON parser for a safetensors header and builds the entries, with
// offsets still relative to the data. A document tree would cost many times the header in memory;
// and since the grammar has three levels, anything nested deeper is refused where it begins.
// Whatever is wrong is thrown as an Error from the event that shows it.
class HeaderHandler {
 public:
  HeaderHandler(std::string_view what, size_t expected_tensors);

  bool null();
  bool boolean(bool value);
  bool number_integer(int64_t value);
  bool number_unsigned(uint64_t value);
  bool number_float(double value, const std::string& text);
  bool string(std::string& value);
  bool binary(nlohmann::json::binary_t& value);
  bool start_object(size_t elements);
  bool key(std::string& name);
  bool end_object();
  bool start_array(size_t elements);
  bool end_array();
  bool parse_error(size_t position, const std::string& token,
                   const nlohmann::detail::exception& error);

  std::vector<TensorEntry> take_entries() { return std::move(entries_); }

 private:
  // State of the parser. A key leads from the state of its object to the state of its value.
  enum class State {
    document,        // before the header object, and after it
    names,           // in the header object, a tensor name or __metadata__ comes next
    tensor_value,    // after a tensor's name
    metadata_value,  // after __metadata__
    fields,          // in a tensor's object
    dtype,
    shape,
    shape_array,
    offsets,
    offsets_array,
    metadata,       // in the metadata object
    metadata_text,  // after a metadata key
  };
  enum Field { kDType, kShape, kOffsets, kFieldCount };

  [[noreturn]] void refuse(std::string_view found) const;
  std::string place() const;
  void start_tensor_field(const std::string& name);
  void start_metadata_entry(std::string& name);
  void finish_tensor();
  void finish_metadata();

  std::string_view what_;
  State state_ = State::document;
  bool metadata_seen_ = false;
  std::vector<std::string> metadata_keys_;
  std::bitset<kFieldCount> seen_;  // fields of the tensor being read
  std::vector<uint64_t> offsets_;  // begin and end of the tensor being read
  std::vector<TensorEntry> entries_;
};

}  // namespace klotski
