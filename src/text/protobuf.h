#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace klotski {

// Reads the fields of one protobuf message in the wire format, with every length checked against
// the bytes there are. Nested messages are read by readers of their own.
class ProtobufReader {
 public:
  // `what` names the file and message in errors.
  ProtobufReader(std::string_view bytes, std::string what)
      : bytes_(bytes), what_(std::move(what)) {}

  // Moves to the next field; false at the end of the message.
  bool next();
  uint32_t field() const { return field_; }

  // The value of the current field; throws where its wire type is another.
  uint64_t varint() const;
  bool boolean() const { return varint() != 0; }
  int32_t int32() const { return static_cast<int32_t>(varint()); }
  float float32() const;
  std::string_view bytes() const;

 private:
  enum class Wire : uint32_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

  uint64_t read_varint();
  uint64_t read_fixed(size_t size);
  [[noreturn]] void refuse(std::string_view problem) const;

  std::string_view bytes_;
  std::string what_;
  size_t at_ = 0;
  uint32_t field_ = 0;
  Wire wire_ = Wire::varint;
  uint64_t number_ = 0;
  std::string_view payload_;
};

}  // namespace klotski
