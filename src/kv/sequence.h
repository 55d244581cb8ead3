#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kv/sequence_states.h"
#include "model/cache_layout.h"

namespace klotski {

// Positions in a page.
inline constexpr int64_t kKvPageTokens = 16;

inline int64_t kv_pages_for(int64_t tokens) { return (tokens + kKvPageTokens - 1) / kKvPageTokens; }

// Lossy: a token sees only the first `sinks` positions and the last `window` ones, itself included
// (StreamingLLM), and the pages between them are given back. Off where window is 0. Keys stay
// rotated to their positions in the text: counting positions within the cache instead, as the paper
// does, would rotate every cached key anew at every step, and matters only to texts longer than the
// model's positions, which are not run.
struct StreamingWindow {
  int64_t sinks = 0;
  int64_t window = 0;

  bool on() const { return window > 0; }
  int64_t sink_pages() const { return kv_pages_for(sinks); }
};

// The pages and the length of one sequence. Owned by whoever runs the sequence; only the cache
// changes it.
class KvSequence {
 public:
  int64_t length() const { return length_; }  // committed positions
  bool spilled() const { return spilled_; }   // its pages are in the file, not in memory
  int64_t number() const { return number_; }  // of those the cache numbered, from 1; 0: none yet

 private:
  friend class PagedKvCache;
  friend class KvStage;
  static constexpr int32_t kGivenBack = -1;

  // Pages that are the sequence's own: neither given back nor shared.
  int64_t live_pages() const {
    return static_cast<int64_t>(pages_.size()) - given_back_ - static_cast<int64_t>(shared_.size());
  }

  std::vector<int32_t> pages_;   // by position / kKvPageTokens: places in memory or in the file
  std::vector<int32_t> spare_;   // places in the file booked for pages to come, the next one last
  std::vector<int32_t> shared_;  // nodes of its first pages, which other sequences may use too
  int64_t booked_ = 0;           // pages of its own that it may hold without asking
  int64_t given_back_ = 0;       // pages between sinks and window
  int64_t number_ = 0;
  int64_t length_ = 0;
  int64_t reserved_ = 0;        // positions of the step at hand
  int64_t booked_in_step_ = 0;  // pages that were booked for them
  bool spilled_ = false;
  StateVersions states_;
  bool lost_ = false;  // a failed write left committed positions in no known state
};

// The data of one layer and one sequence, for attention.
class KvView {
 public:
  // Points into this view and into the cache's memory.
  LayerCache cache() const {
    LayerCache cache{.type = type_,
                     .page_tokens = kKvPageTokens,
                     .kept_prefix = kept_.sinks,
                     .kept_window = kept_.window,
                     .state = state_,
                     .next_state = next_state_};
    cache.parts.reserve(parts_);
    const size_t pages = parts_ == 0 ? 0 : addresses_.size() / parts_;
    for (size_t part = 0; part < parts_; ++part) {
      cache.parts.push_back(std::span(addresses_).subspan(part * pages, pages));
    }
    return cache;
  }

 private:
  friend class PagedKvCache;
  std::vector<std::byte*> addresses_;  // [parts][pages]; null where the page was given back
  size_t parts_ = 0;
  DType type_ = DType::F32;
  StreamingWindow kept_;
  std::span<const std::byte> state_;
  std::span<std::byte> next_state_;
};

}  // namespace klotski
