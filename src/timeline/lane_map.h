#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "timeline/lane.h"

namespace klotski {

// A value for each lane that was asked for, in the order of the lanes. A machine has few: looking
// through them is faster than a tree.
template <typename Value>
class LaneMap {
 public:
  using Entry = std::pair<Lane, Value>;

  // The lane's value, which is `initial` when it is asked for first.
  Value& at(Lane lane, const Value& initial = {}) {
    size_t i = 0;
    while (i < entries_.size() && entries_[i].first < lane) ++i;
    if (i == entries_.size() || entries_[i].first != lane) {
      entries_.emplace(entries_.begin() + static_cast<std::ptrdiff_t>(i), lane, initial);
    }
    return entries_[i].second;
  }

  // Null where the lane was not asked for.
  const Value* find(Lane lane) const {
    const auto found = std::find_if(entries_.begin(), entries_.end(),
                                    [&](const Entry& entry) { return entry.first == lane; });
    return found == entries_.end() ? nullptr : &found->second;
  }

  auto begin() { return entries_.begin(); }
  auto end() { return entries_.end(); }
  auto begin() const { return entries_.begin(); }
  auto end() const { return entries_.end(); }
  size_t size() const { return entries_.size(); }

 private:
  std::vector<Entry> entries_;
};

}  // namespace klotski
