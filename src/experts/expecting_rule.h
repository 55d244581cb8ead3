#pragma once

#include "experts/eviction.h"
#include "experts/pass_expectations.h"

namespace klotski {

// The part that rules with expectations share: they are told of the pass, and experts leave in
// another order whenever that changes.
class ExpectingRule : public EvictionRule {
 public:
  void brought_ahead(ExpertKey) override {}  // expectations say whether it stays
  void now_at(LayerId layer) override { expectations_.now_at(layer); }
  void expect(LayerId layer, std::span<const double> probability) override {
    expectations_.expect(layer, probability);
  }
  void expect_in_next_pass(LayerId layer, std::span<const double> probability) override {
    expectations_.expect_in_next_pass(layer, probability);
  }
  bool uses_expectations() const override { return true; }
  int64_t order_version(LayerId layer) const override { return expectations_.order_version(layer); }

 protected:
  explicit ExpectingRule(int64_t layer_count) : expectations_(layer_count) {}

  PassExpectations expectations_;
};

}  // namespace klotski
