#include <vector>

#include "experts/guesses.h"
#include "schedule/strategy.h"

namespace klotski {

namespace {

// MoE-Infinity's prefetching (section 5.2): missing experts of several coming layers are brought in
// the order of their priority (guesses.h), as many as the link gets to before the next gates. The
// probabilities follow every gate, and with them the guesses: those that have not begun are taken
// back and made anew. Everything else is as in the expert-aware pipeline. Which predictor is asked
// and which experts leave is not decided here.
class PriorityPrefetch : public Schedule {
 public:
  void prefetch(FragmentBuilder& build, LayerId layer) override {
    // Larger groups use nearly every expert: the hot ones of the next layer come first.
    if (build.context().group_rows() > kMostGuessedRows) return pipeline_->prefetch(build, layer);
    build.request(attention_unit(layer), LoadReason::certain);
    build.request(gate_unit(layer), LoadReason::certain);
    const ScheduleContext& context = build.context();
    for (const Guess& guess : by_priority(context.coming(), layer, context.model.layer_count())) {
      if (!worth_guessing(guess, guesses_.size(), context.loads_a_layer)) return;
      const WeightUnit expert = build.expert_of(guess.expert.layer, guess.expert.expert);
      if (build.guess(expert, guess.priority)) guesses_.push_back(expert);
    }
  }

  // The last guess first: no other waits for it.
  void withdraw_guesses(FragmentBuilder& build, TaskSink& sink) override {
    for (; !guesses_.empty(); guesses_.pop_back()) build.take_back(guesses_.back(), sink);
  }

  void experts(FragmentBuilder& build, LayerId layer, const Activated& activated) override {
    pipeline_->experts(build, layer, activated);
  }

 private:
  std::unique_ptr<Schedule> pipeline_ = make_klotski();
  std::vector<WeightUnit> guesses_;  // not yet taken back, in the order of their priority
};

}  // namespace

std::unique_ptr<Schedule> make_priority_prefetch() { return std::make_unique<PriorityPrefetch>(); }

}  // namespace klotski
