#pragma once

// ExpertFlow's token scheduler (section 3.3 of the paper): those that will use the same experts are
// computed together, so that a pass needs few experts. The paper exchanges tokens between two
// batches before every step. Here the micro-batches of a group share every load of a weight, so
// that a smaller batch would gain nothing; which requests wait and which run decides how many
// experts a pass needs. So requests that wait are put in clusters, and a cluster is admitted.
//
// A decision about requests: keys and values are not looked at, pages belong to sequences and stay
// where they are.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "experts/routing_path.h"

namespace klotski {

// A request that runs or waits.
struct ScheduledRequest {
  const RequestShares* shares = nullptr;  // experts that it is expected to use
  bool runs = false;
  int64_t overtaken = 0;  // requests that came later and were admitted before it
};

// A request that this many later ones have overtaken is admitted before all that came after it.
inline constexpr int64_t kMostOvertaken = 64;
// Tokens of a request, the last of its prompt, from which its experts are predicted.
inline constexpr size_t kPredictedTokens = 64;

// The number of waiting requests, the oldest ones, among which the scheduler chooses for groups of
// this size: enough for several groups, or for two large ones. The work of choosing grows with the
// square of it.
int64_t scheduled_requests(int64_t group_requests);

// Which waiting requests are admitted next: `room` indices into `requests`, which are in the order
// in which they came, of which at least `room` wait, and of which `shape` names the experts.
//   - Requests that kMostOvertaken have overtaken come first.
//   - Where there are none and nothing runs, the waiting requests are put in clusters of `room` by
//     balanced k-means, without the newest that would be left over: the oldest one's cluster.
//   - Else those nearest to the ones that run and were chosen, by the sum of the distances.
std::vector<size_t> choose_requests(std::span<const ScheduledRequest> requests,
                                    const RoutingTraceShape& shape, int64_t room);

}  // namespace klotski
