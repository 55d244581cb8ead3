#include "text/protobuf.h"

#include <bit>

#include "base/error.h"

namespace klotski {

void ProtobufReader::refuse(std::string_view problem) const {
  fail(ErrorKind::bad_model, "{}: not a valid protobuf message: {} at byte {} (field {})", what_,
       problem, at_, field_);
}

uint64_t ProtobufReader::read_varint() {
  uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    if (at_ >= bytes_.size()) refuse("the message ends inside a number");
    const auto byte = static_cast<unsigned char>(bytes_[at_++]);
    value |= static_cast<uint64_t>(byte & 0x7F) << shift;
    if (byte < 0x80) return value;
  }
  refuse("a number of more than 64 bits");
}

uint64_t ProtobufReader::read_fixed(size_t size) {
  if (bytes_.size() - at_ < size) refuse("the message ends inside a number");
  uint64_t value = 0;
  for (size_t i = size; i-- > 0;) {
    value = (value << 8) | static_cast<unsigned char>(bytes_[at_ + i]);
  }
  at_ += size;
  return value;
}

bool ProtobufReader::next() {
  if (at_ == bytes_.size()) return false;
  const uint64_t tag = read_varint();
  field_ = static_cast<uint32_t>(tag >> 3);
  wire_ = static_cast<Wire>(tag & 7);
  if (field_ == 0 || tag > UINT32_MAX) refuse("a bad field number");
  switch (wire_) {
    case Wire::varint:
      number_ = read_varint();
      return true;
    case Wire::fixed64:
      number_ = read_fixed(8);
      return true;
    case Wire::fixed32:
      number_ = read_fixed(4);
      return true;
    case Wire::bytes: {
      const uint64_t size = read_varint();
      if (size > bytes_.size() - at_) refuse("a length beyond the end");
      payload_ = bytes_.substr(at_, size);
      at_ += size;
      return true;
    }
  }
  refuse("an unknown wire type");
}

uint64_t ProtobufReader::varint() const {
  if (wire_ != Wire::varint) refuse("expected a number");
  return number_;
}

float ProtobufReader::float32() const {
  if (wire_ != Wire::fixed32) refuse("expected a 32-bit float");
  return std::bit_cast<float>(static_cast<uint32_t>(number_));
}

std::string_view ProtobufReader::bytes() const {
  if (wire_ != Wire::bytes) refuse("expected bytes");
  return payload_;
}

}  // namespace klotski
