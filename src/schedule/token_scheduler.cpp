#include "schedule/token_scheduler.h"

#include <algorithm>

#include "experts/balanced_kmeans.h"

namespace klotski {

namespace {

constexpr uint64_t kSeed = 1;  // any number; always the same, so that runs can be repeated

class RequestChoice {
 public:
  RequestChoice(std::span<const ScheduledRequest> requests, const RoutingTraceShape& shape,
                int64_t room)
      : room_(static_cast<size_t>(room)) {
    std::vector<const RequestShares*> shares;
    for (const ScheduledRequest& request : requests) shares.push_back(request.shares);
    paths_ = distinctive_paths(shares, shape);
    to_group_.resize(paths_.size());
    std::vector<size_t> first;  // that run or come first
    for (size_t i = 0; i < requests.size(); ++i) {
      const bool overtaken = requests[i].overtaken >= kMostOvertaken && chosen_.size() < room_;
      if (!requests[i].runs && overtaken) chosen_.push_back(i);
      (requests[i].runs || overtaken ? first : waiting_).push_back(i);
    }
    for (const size_t request : first) join(request);
  }

  std::vector<size_t> run() {
    if (group_is_empty_) return oldest_cluster();
    while (chosen_.size() < room_) {
      const auto nearest =
          std::min_element(waiting_.begin(), waiting_.end(),
                           [&](size_t a, size_t b) { return to_group_[a] < to_group_[b]; });
      const size_t next = *nearest;
      waiting_.erase(nearest);
      chosen_.push_back(next);
      join(next);
    }
    return chosen_;
  }

 private:
  // The request is one of the group's: it runs or was chosen.
  void join(size_t request) {
    group_is_empty_ = false;
    for (const size_t i : waiting_) to_group_[i] += hamming_distance(paths_[i], paths_[request]);
  }

  std::vector<size_t> oldest_cluster() const {
    const size_t clusters = waiting_.size() / room_;
    std::vector<RoutingPath> paths;
    for (size_t i = 0; i < clusters * room_; ++i) paths.push_back(paths_[waiting_[i]]);
    const PathClusters clustered = balanced_kmeans(paths, static_cast<int64_t>(clusters), kSeed);
    std::vector<size_t> members = clustered.members(clustered.cluster_of[0]);
    for (size_t& member : members) member = waiting_[member];
    return members;
  }

  size_t room_;
  std::vector<RoutingPath> paths_;
  std::vector<int64_t> to_group_;  // [request]: distances of one that waits to the group's, summed
  bool group_is_empty_ = true;
  std::vector<size_t> chosen_;
  std::vector<size_t> waiting_;  // the others, the oldest first
};

}  // namespace

int64_t scheduled_requests(int64_t group_requests) {
  return std::clamp<int64_t>(2 * group_requests, 64, 256);
}

std::vector<size_t> choose_requests(std::span<const ScheduledRequest> requests,
                                    const RoutingTraceShape& shape, int64_t room) {
  return RequestChoice(requests, shape, room).run();
}

}  // namespace klotski
