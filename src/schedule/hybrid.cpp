#include <algorithm>
#include <map>

#include "schedule/strategy.h"
#include "tensor/format.h"

namespace klotski {

namespace {

// A device and the CPU compute the experts of a layer together, each the experts that it has done
// sooner: the device those that it holds or the link brings in time, the CPU the rest, from host
// memory. The division follows from the routing, the policy's costs and a clock that runs by these
// costs: never from measured time. Groups with so many rows that an expert comes sooner than the
// CPU computes it run as in klotski.
class Hybrid : public Schedule {
 public:
  // While the CPU computes a layer, the link brings the units that help most in the next one.
  void prefetch(FragmentBuilder& build, LayerId layer) override {
    const ExpertCosts* costs = build.shared_costs(layer);
    if (costs && !expected_rows_.empty()) {
      book_kv(build, *costs);
      ask(build, attention_unit(layer), LoadReason::certain);
      ask(build, gate_unit(layer), LoadReason::certain);
      if (!most_are_used(build, layer)) return refill(build);
      const Division foreseen =
          divide(expected(build, layer), *costs, static_cast<double>(build.context().group_rows()),
                 std::max(link_free_, decided_) - next_);
      for (const ExpertId expert : foreseen.device) {
        if (!ask(build, build.expert_of(layer, expert), LoadReason::prefetch)) break;
      }
    } else {
      link_only_->prefetch(build, layer);
      if (!book_weights(build)) return refill(build);
      for (const WeightUnit& unit : build.requested(layer)) arrivals_.emplace(unit, link_free_);
    }
    refill(build);
  }

  // Rows go down before the division is known: a copy that nobody needs, now and then, costs less
  // than a CPU that waits for rows.
  void gate(FragmentBuilder& build, LayerId layer, int32_t micro_batch) override {
    build.gate(layer, micro_batch);
    const bool last = micro_batch + 1 == build.micro_batches();
    if (last && build.shared_costs(layer)) build.rows_to(kHostTier, layer);
  }

  // Nothing is requested for the choices of one micro-batch: the division needs all of them.
  void gate_finished(FragmentBuilder& build, LayerId layer, int32_t micro_batch,
                     const std::vector<ExpertId>& chosen) override {
    if (!build.shared_costs(layer)) link_only_->gate_finished(build, layer, micro_batch, chosen);
  }

  void experts(FragmentBuilder& build, LayerId layer, const Activated& activated) override {
    const std::vector<ExpertId> chosen = union_of(activated);
    divide_and_compute(build, layer, activated, chosen);
    // Choices are counted after the experts ran: until then an expert counts as one that will be
    // used.
    if (build.context().model.layer(layer).feed_forward.routed) build.count_choices(layer, chosen);
  }

 private:
  void divide_and_compute(FragmentBuilder& build, LayerId layer, const Activated& activated,
                          const std::vector<ExpertId>& chosen) {
    const ExpertCosts* costs = build.shared_costs(layer);
    if (!costs) {
      if (!build.shares_experts()) forget();
      link_only_->experts(build, layer, activated);
      book_weights(build);
      return;
    }
    link_seconds_per_byte_ =
        costs->link /
        static_cast<double>(build.context().facts(build.expert_of(layer, ExpertId(0))).own_bytes);
    decided_ = next_;
    const std::vector<RoutedExpert> routed = routed_experts(build, layer, chosen);
    const Division division =
        divide(routed, *costs, static_cast<double>(build.context().group_rows()),
               std::max(link_free_, decided_) - decided_);
    compute(build, layer, division);
    for (int32_t k = 0; k < build.micro_batches(); ++k) build.combine(layer, k);
    build.done(gate_unit(layer));

    next_ = decided_ + division.seconds + build.seconds_until_next(layer);
    computed_below_ = {layer, division.cpu};
    kv_booked_ = false;
    arrivals_.clear();
    expected_rows_.clear();
    for (const RoutedExpert& expert : routed) expected_rows_.push_back(expert.rows);
    std::sort(expected_rows_.rbegin(), expected_rows_.rend());
  }

  struct ComputedBelow {
    LayerId layer;
    std::vector<ExpertId> experts;
  };

  // Books the unit's way over the link, if it has to come.
  bool ask(FragmentBuilder& build, const WeightUnit& unit, LoadReason reason) {
    const bool asked = build.request(unit, reason);
    if (book_weights(build)) arrivals_[unit] = link_free_;
    return asked;
  }

  // Books the link's time for a layer's keys and values once, though two passes ask for those of a
  // pass's first layer: the pass before it and the pass itself.
  void book_kv(const FragmentBuilder& build, const ExpertCosts& costs) {
    if (kv_booked_ || !build.loads_kv()) return;
    book_link(costs.kv);
    kv_booked_ = true;
  }

  // Books the way of the requested weights over the link; false where none have to come.
  bool book_weights(FragmentBuilder& build) {
    const auto bytes = static_cast<double>(build.take_link_bytes());
    if (bytes > 0) book_link(bytes * link_seconds_per_byte_);
    return bytes > 0;
  }

  void book_link(double seconds) { link_free_ = std::max(link_free_, decided_) + seconds; }

  // When an expert is on the device, seconds after `now`.
  double arrives(const FragmentBuilder& build, const WeightUnit& unit, double now) const {
    if (!build.resident(unit)) return kNotOnItsWay;
    const auto coming = arrivals_.find(unit);
    return coming == arrivals_.end() ? 0.0 : std::max(coming->second - now, 0.0);
  }

  std::vector<RoutedExpert> routed_experts(FragmentBuilder& build, LayerId layer,
                                           const std::vector<ExpertId>& chosen) const {
    std::vector<RoutedExpert> routed;
    for (const ExpertId expert : chosen) {
      const WeightUnit unit = build.expert_of(layer, expert);
      routed.push_back({expert, build.context().rows(expert), arrives(build, unit, decided_)});
    }
    return routed;
  }

  // Whether most experts of a layer are used. Where rows choose few, a guess is wrong more often
  // than right, and its copy takes memory bandwidth from the CPU.
  bool most_are_used(FragmentBuilder& build, LayerId layer) const {
    const int64_t experts = build.context().model.layer(layer).feed_forward.experts;
    return 2 * std::ssize(expected_rows_) >= experts;
  }

  // The expected rows of the next layer's experts, which are taken to be spread like this layer's:
  // most rows for the experts that are foretold to be hot, then for the most chosen ones.
  std::vector<RoutedExpert> expected(FragmentBuilder& build, LayerId layer) const {
    std::vector<ExpertId> ranked = build.context().hot(layer);
    for (const ExpertId expert : build.ranked(layer)) {
      if (ranked.size() >= expected_rows_.size()) break;
      if (std::find(ranked.begin(), ranked.end(), expert) == ranked.end()) ranked.push_back(expert);
    }
    std::vector<RoutedExpert> routed;
    for (size_t i = 0; i < std::min(ranked.size(), expected_rows_.size()); ++i) {
      const WeightUnit unit = build.expert_of(layer, ranked[i]);
      routed.push_back({ranked[i], expected_rows_[i], arrives(build, unit, next_)});
    }
    return routed;
  }

  void compute(FragmentBuilder& build, LayerId layer, const Division& division) {
    for (const WeightUnit& unit : build.requested(layer)) {
      const auto& wanted = division.device;
      if (std::find(wanted.begin(), wanted.end(), unit.expert) == wanted.end()) build.done(unit);
    }
    const ExpertId last = division.cpu.empty() ? ExpertId(-1) : division.cpu.back();
    const int64_t slice = slice_outputs(build, layer, division.slice);
    const auto sliced = [&](ExpertId expert) { return expert == last ? slice : 0; };
    for (const ExpertId expert : division.cpu)
      build.expert_at(kHostTier, layer, expert, sliced(expert));
    for (size_t i = 0; i < division.device.size(); ++i) {
      request_more(build, layer, division.device, i);
      const WeightUnit unit = build.expert_of(layer, division.device[i]);
      build.need(unit);
      build.expert(layer, unit.expert, kWholeGroup);
      build.done(unit);
    }
    if (slice > 0) build.expert_slice(layer, last, slice);
    book_weights(build);
    for (const ExpertId expert : division.cpu) build.scatter(layer, expert, sliced(expert));
  }

  // Outputs of a slice with that share of an expert, a multiple of kCutColumns: each part's rows
  // begin where kernels read them fastest.
  static int64_t slice_outputs(FragmentBuilder& build, LayerId layer, double share) {
    constexpr int64_t kStep = kCutColumns;
    const auto width = static_cast<double>(build.context().model.layer(layer).feed_forward.width);
    return static_cast<int64_t>(share * width) / kStep * kStep;
  }

  static void request_more(FragmentBuilder& build, LayerId layer,
                           const std::vector<ExpertId>& experts, size_t from) {
    for (size_t i = from; i < experts.size(); ++i) {
      if (!build.request(build.expert_of(layer, experts[i]), LoadReason::demand)) return;
    }
  }

  // An idle link brings experts that the CPU had to compute, if they are used more than those that
  // leave for them.
  void refill(FragmentBuilder& build) {
    for (const ExpertId expert : computed_below_.experts) {
      if (link_free_ >= next_) return;
      build.refill(computed_below_.layer, expert);
      book_weights(build);
    }
  }

  void forget() {
    decided_ = next_ = link_free_ = 0;
    kv_booked_ = false;
    arrivals_.clear();
    expected_rows_.clear();
    computed_below_ = {};
  }

  std::unique_ptr<Schedule> link_only_ = make_klotski();
  // Times by the policy's costs, in seconds.
  double decided_ = 0;    // when the last layer was divided
  double next_ = 0;       // when the next one will be
  double link_free_ = 0;  // when the link has brought all it was asked for
  double link_seconds_per_byte_ = 0;
  bool kv_booked_ = false;                 // the next layer's, on the link
  std::map<WeightUnit, double> arrivals_;  // seconds, for experts that were asked for ahead
  std::vector<double> expected_rows_;      // rows by rank of expert; empty: not known
  ComputedBelow computed_below_;           // the last layer's
};

}  // namespace

std::unique_ptr<Schedule> make_hybrid() { return std::make_unique<Hybrid>(); }

}  // namespace klotski
