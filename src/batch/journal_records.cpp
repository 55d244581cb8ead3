#include "batch/journal_records.h"

#include <zlib.h>

#include <algorithm>
#include <array>

#include "base/bytes.h"

namespace klotski {

namespace {

constexpr uint64_t kFrameBytes = 8;     // length and checksum
constexpr uint64_t kRowFieldBytes = 9;  // outcome and number of the row
constexpr uint64_t kWindowBytes = 256 * kKiB;

void put_number(std::string& out, uint64_t number, int bytes) {
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(number >> (8 * i));
}

uint64_t get_number(std::string_view bytes) {
  uint64_t number = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    number |= uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
  }
  return number;
}

// The checksum covers the length too, so that no run of zeros is a record.
uint32_t checksum_of(std::string_view length, std::string_view payload) {
  const auto add = [](uLong sum, std::string_view bytes) {
    return crc32_z(sum, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size());
  };
  return static_cast<uint32_t>(add(add(0, length), payload));
}

std::string framed(std::string_view payload) {
  std::string record;
  record.reserve(kFrameBytes + payload.size());
  put_number(record, payload.size(), 4);
  put_number(record, checksum_of(record, payload), 4);
  return record.append(payload);
}

}  // namespace

std::string head_record(std::string_view head) { return std::string(kJournalMark) + framed(head); }

std::string row_record(const JournalRow& row) {
  std::string payload;
  payload.reserve(kRowFieldBytes + row.text.size());
  payload += static_cast<char>(row.failed);
  put_number(payload, static_cast<uint64_t>(row.row), 8);
  return framed(payload.append(row.text));
}

std::string_view JournalReader::bytes(uint64_t offset, uint64_t count) {
  if (offset < window_begin_ || offset + count > window_begin_ + window_.size()) {
    window_.resize(std::min(size_ - offset, std::max(count, kWindowBytes)));
    window_begin_ = offset;
    read_at_(offset, window_);
  }
  return std::string_view(window_).substr(offset - window_begin_, count);
}

// Reads the record at at_ into payload_; false where none that is whole begins there.
bool JournalReader::read_record() {
  if (size_ - at_ < kFrameBytes) return false;
  const std::string frame(bytes(at_, kFrameBytes));
  const uint64_t length = get_number(std::string_view(frame).substr(0, 4));
  if (length == 0 || length > kMostRecordBytes || length > size_ - at_ - kFrameBytes) return false;
  payload_ = bytes(at_ + kFrameBytes, length);
  const std::string_view sum = std::string_view(frame).substr(4);
  if (checksum_of(std::string_view(frame).substr(0, 4), payload_) != get_number(sum)) return false;
  at_ += kFrameBytes + length;
  return true;
}

std::optional<std::string> JournalReader::head() {
  if (size_ < kJournalMark.size() || bytes(0, kJournalMark.size()) != kJournalMark) {
    return std::nullopt;
  }
  at_ = kJournalMark.size();
  if (!read_record()) return std::nullopt;
  return payload_;
}

bool JournalReader::torn_at_birth() {
  constexpr uint64_t kMostHeadBytes = 64 * kKiB;
  const uint64_t begin = kJournalMark.size() + kFrameBytes;
  if (size_ > begin + kMostHeadBytes) return false;
  const std::string all(bytes(0, size_));
  if (all.find_first_not_of('\0') == std::string::npos) return true;
  const std::string_view mark = std::string_view(all).substr(0, kJournalMark.size());
  if (!kJournalMark.starts_with(mark)) return false;
  if (size_ < begin) return true;
  return size_ - begin <= get_number(std::string_view(all).substr(kJournalMark.size(), 4));
}

bool JournalReader::next(JournalRow& row) {
  const uint64_t begin = at_;
  if (!read_record()) return false;
  const auto outcome = static_cast<unsigned char>(payload_[0]);
  const uint64_t number =
      payload_.size() > kRowFieldBytes ? get_number(std::string_view(payload_).substr(1, 8)) : 0;
  if (payload_.size() <= kRowFieldBytes || outcome > 1 || number > INT64_MAX) {
    at_ = begin;
    return false;
  }
  row_offset_ = begin;
  row.row = static_cast<int64_t>(number);
  row.failed = outcome == 1;
  row.text.assign(payload_, kRowFieldBytes);
  return true;
}

}  // namespace klotski
