#pragma once

// Buffers that operations read and write, in their memory.

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "forward/batch.h"
#include "kernels/ops.h"

namespace klotski {

// A list that owns its elements, which have any values until they are written.
template <typename T>
class List {
 public:
  List(const Processor& ops, int64_t size)
      : memory_(&ops.memory),
        data_(reinterpret_cast<T*>(
            size == 0 ? nullptr : memory_->take(static_cast<uint64_t>(size) * sizeof(T)))),
        size_(static_cast<size_t>(size)) {}
  // A copy of values in the program's memory.
  List(const Processor& ops, std::span<const T> values) : List(ops, std::ssize(values)) {
    memory_->upload(reinterpret_cast<std::byte*>(data_), values.data(), values.size_bytes());
  }
  ~List() {
    if (data_ != nullptr) memory_->give_back(reinterpret_cast<std::byte*>(data_), bytes());
  }
  List(List&& other) noexcept
      : memory_(other.memory_),
        data_(std::exchange(other.data_, nullptr)),
        size_(std::exchange(other.size_, 0)) {}
  List& operator=(List&& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  List(const List&) = delete;
  List& operator=(const List&) = delete;

  std::span<T> span() { return {data_, size_}; }
  std::span<const T> span() const { return {data_, size_}; }
  int64_t size() const { return static_cast<int64_t>(size_); }

  std::vector<T> download() const {
    std::vector<T> values(size_);
    memory_->download(values.data(), reinterpret_cast<const std::byte*>(data_), bytes());
    return values;
  }

 private:
  uint64_t bytes() const { return size_ * sizeof(T); }

  ProcessorMemory* memory_;
  T* data_;
  size_t size_;
};

// A list on its way to the program's memory, in the order of calls; a long one is there at once.
// The list must live till then.
template <typename T>
class Download {
 public:
  Download(const Processor& ops, const List<T>& list) : size_(list.span().size()) {
    const uint64_t bytes = list.span().size_bytes();
    if (ops.memory.readable || bytes > ProcessorMemory::kMostLanding) {
      values_ = list.download();
    } else {
      const auto* from = reinterpret_cast<const std::byte*>(list.span().data());
      landing_ = reinterpret_cast<const T*>(ops.memory.begin_download(from, bytes));
    }
  }
  // The list. Called once, after the operations so far were waited for.
  std::vector<T> take() {
    return landing_ ? std::vector(landing_, landing_ + size_) : std::move(values_);
  }

 private:
  size_t size_;
  const T* landing_ = nullptr;
  std::vector<T> values_;
};

// The rows of one sequence among a batch's.
inline Rows rows_of(Rows rows, const BatchSequence& sequence) {
  return {rows.row(sequence.first_row), sequence.tokens, rows.width};
}

// Rows that own their floats.
class Buffer {
 public:
  Buffer(const Processor& ops, int64_t count, int64_t width)
      : count_(count), width_(width), floats_(ops, count * width) {}
  Rows rows() { return {floats_.span().data(), count_, width_}; }
  Rows rows(const BatchSequence& sequence) { return rows_of(rows(), sequence); }
  std::span<float> floats() { return floats_.span(); }
  std::vector<float> download() const { return floats_.download(); }

 private:
  int64_t count_;
  int64_t width_;
  List<float> floats_;
};

}  // namespace klotski
