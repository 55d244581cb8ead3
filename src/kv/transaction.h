#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "kv/paged_cache.h"

namespace klotski {

// One step of several sequences in the cache: reserve, compute every layer, then commit() or roll
// back. A step that ends without commit(), as when computing throws, is undone by the destructor:
// the sequences are as they were before it.
class KvTransaction {
 public:
  explicit KvTransaction(PagedKvCache& cache) : cache_(cache) {}
  ~KvTransaction();
  KvTransaction(const KvTransaction&) = delete;
  KvTransaction& operator=(const KvTransaction&) = delete;

  // Makes room for `tokens` positions beyond the committed ones. The sequence is placed, takes part
  // in the step once and outlives it. Throws an internal error where more is asked for than was
  // booked and the cache is full.
  void reserve(KvSequence& sequence, int64_t tokens);

  // Lets commit() keep the first `tokens` reserved positions of a sequence and take back the
  // others.
  void keep(const KvSequence& sequence, int64_t tokens);

  // Makes the reserved positions part of their sequences. The step is over.
  void commit();

 private:
  struct Member {
    KvSequence* sequence;
    int64_t tokens;
  };

  PagedKvCache& cache_;
  std::vector<Member> members_;
};

// Sequences that live in a cache together and are released together, when this object ends.
class PlacedSequences {
 public:
  explicit PlacedSequences(PagedKvCache& cache) : cache_(cache) {}
  ~PlacedSequences();
  PlacedSequences(const PlacedSequences&) = delete;
  PlacedSequences& operator=(const PlacedSequences&) = delete;

  // Adds a sequence, as PagedKvCache::place() does; false where the cache has no room for it.
  [[nodiscard]] bool place(int64_t total_tokens, int64_t step_tokens);

  size_t size() const { return sequences_.size(); }
  KvSequence& operator[](size_t index) { return sequences_[index]; }
  const KvSequence& operator[](size_t index) const { return sequences_[index]; }

 private:
  PagedKvCache& cache_;
  std::deque<KvSequence> sequences_;  // addresses stay as sequences are added
};

}  // namespace klotski
