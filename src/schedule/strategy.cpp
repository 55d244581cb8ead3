#include "schedule/strategy.h"

#include <algorithm>

#include "base/error.h"

namespace klotski {

std::vector<ExpertId> union_of(const Activated& activated) {
  std::vector<ExpertId> all;
  for (const std::vector<ExpertId>& experts : activated) {
    all.insert(all.end(), experts.begin(), experts.end());
  }
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

std::unique_ptr<Schedule> make_schedule(Strategy strategy) {
  switch (strategy) {
    case Strategy::simple:
      return make_simple();
    case Strategy::multi_batch:
      return make_multi_batch();
    case Strategy::hot_prefetch:
      return make_hot_prefetch();
    case Strategy::klotski:
      return make_klotski();
    case Strategy::activation_aware:
    case Strategy::predictive:
      return make_priority_prefetch();
    case Strategy::cgopipe:
      return make_cgopipe();
    case Strategy::hybrid:
      return make_hybrid();
    case Strategy::count_:
      break;
  }
  fail(ErrorKind::internal, "no such strategy");
}

}  // namespace klotski
