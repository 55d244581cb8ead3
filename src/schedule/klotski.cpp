#include <algorithm>
#include <iterator>

#include "schedule/strategy.h"

namespace klotski {

namespace {

// The expert-aware multi-batch pipeline: Klotski, section 5, Algorithm 1 and Figure 7(b). Attention
// runs batch by batch, an expert over the tokens of all batches: first the resident experts, then
// the others in the order in which they arrive, hot ones first. An expert whose tokens are done
// gives its slot back at once; weights that the next layer surely or probably needs take it while
// the last experts still run.
class Klotski : public Schedule {
 public:
  void prefetch(FragmentBuilder& build, LayerId layer) override {
    build.request(attention_unit(layer), LoadReason::certain);
    build.request(gate_unit(layer), LoadReason::certain);
    for (const ExpertId expert : build.context().hot(layer)) {
      if (!build.request(build.expert_of(layer, expert), LoadReason::prefetch)) return;
    }
  }

  void experts(FragmentBuilder& build, LayerId layer, const Activated& activated) override {
    std::vector<WeightUnit> order = in_order_of_arrival(build, layer, activated);
    size_t requested = 0;  // experts before this index have been requested
    for (size_t i = 0; i < order.size(); ++i) {
      if (build.need(order[i])) requested = i;
      build.expert(layer, order[i].expert, kWholeGroup);
      build.done(order[i]);
      requested = request_more(build, order, std::max(requested, i + 1));
    }
    for (int32_t k = 0; k < build.micro_batches(); ++k) build.combine(layer, k);
    build.done(gate_unit(layer));
  }

 private:
  static std::vector<WeightUnit> in_order_of_arrival(FragmentBuilder& build, LayerId layer,
                                                     const Activated& activated) {
    std::vector<WeightUnit> chosen;
    for (const ExpertId expert : union_of(activated)) {
      chosen.push_back(build.expert_of(layer, expert));
    }
    // Experts arrive in the order of their requests, since loads finish in that order.
    std::vector<WeightUnit> order;
    for (const WeightUnit& unit : build.requested(layer)) {
      if (std::binary_search(chosen.begin(), chosen.end(), unit)) {
        order.push_back(unit);
      } else {
        build.done(unit);  // prefetched, but no token wants it
      }
    }
    std::vector<WeightUnit> arriving = order;
    std::sort(arriving.begin(), arriving.end());
    std::set_difference(chosen.begin(), chosen.end(), arriving.begin(), arriving.end(),
                        std::back_inserter(order));
    return order;
  }

  // Requests experts that found no slot before, from order[from] on, after a slot has come free.
  // Returns the index of the first expert that still finds none.
  static size_t request_more(FragmentBuilder& build, const std::vector<WeightUnit>& order,
                             size_t from) {
    while (from < order.size() && build.request(order[from], LoadReason::demand)) ++from;
    return from;
  }
};

}  // namespace

std::unique_ptr<Schedule> make_klotski() { return std::make_unique<Klotski>(); }

}  // namespace klotski
