#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "experts/activation_matrix.h"

namespace klotski {

// Capacity from which on the paper finds no better latency (MoE-Infinity, figure 13).
inline constexpr int64_t kActivationCapacity = 120;

// Expert activation matrix collection (EAMC; MoE-Infinity, section 4.2): the matrices of past
// requests, at most `capacity` of them. Once the collection is full a new matrix replaces the one
// most similar to it: recent requests are always there, and different ones stay.
class ActivationCollection {
 public:
  ActivationCollection(RoutingTraceShape shape, int64_t capacity);

  const RoutingTraceShape& shape() const { return shape_; }
  int64_t capacity() const { return capacity_; }
  int64_t size() const { return std::ssize(matrices_); }
  const ActivationMatrix& operator[](int64_t i) const {
    return matrices_[static_cast<size_t>(i)].matrix;
  }
  // Sum of the squared counts of matrix `i` in its first `layers` layers.
  double squared(int64_t i, size_t layers) const {
    return matrices_[static_cast<size_t>(i)].squared[layers];
  }
  // A number that changes with every change of the collection.
  int64_t version() const { return version_; }

  // A matrix without any count is not kept.
  void add(const ActivationMatrix& request);

 private:
  struct Stored {
    ActivationMatrix matrix;
    std::vector<double> squared;  // [number of layers, from 0]
  };

  int64_t nearest(const ActivationMatrix& request) const;

  RoutingTraceShape shape_;
  int64_t capacity_;
  int64_t version_ = 0;
  std::vector<Stored> matrices_;
};

// The matrices of past prompts and those of past decoding: they are traced separately.
struct ActivationHistory {
  ActivationCollection prompt;
  ActivationCollection decode;

  ActivationHistory(const RoutingTraceShape& shape, int64_t capacity)
      : prompt(shape, capacity), decode(shape, capacity) {}

  // A JSON file, written beside and renamed, bound to the model by its routed layers:
  //   {"version": 1, "model": "...", "layers": [{"layer": 0, "experts": 4, "top_k": 2}, ...],
  //    "prompt": [[[3, 0, 1, 2], ...], ...], "decode": [...]}
  // Counts by matrix, routed layer and expert.
  void save(const std::filesystem::path& path) const;
  // Throws where the file is damaged or not about `shape` (the model's name may differ). A file
  // with more matrices than `capacity` is read to its end: the later replace the most similar.
  static ActivationHistory load(const std::filesystem::path& path, const RoutingTraceShape& shape,
                                int64_t capacity);

  // load() of a file that exists, else an empty history; an empty path names none.
  static ActivationHistory load_if_there(const std::filesystem::path& path,
                                         const RoutingTraceShape& shape, int64_t capacity);

  // The file's text, and what load() makes of it; `what` names the text in messages.
  std::string text() const;
  static ActivationHistory parse(std::string_view text, const std::string& what,
                                 const RoutingTraceShape& shape, int64_t capacity);
};

}  // namespace klotski
