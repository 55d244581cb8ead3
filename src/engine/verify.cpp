#include "engine/verify.h"

namespace klotski {

namespace {

// Whether experts that were nearly tied changed places at a position or, since attention looks
// back, at one before it. Rounding can do no more than that in the first layer in which any choice
// differs; choices of later layers may follow from it.
bool routing_tie(const ObservedPrompt& exact, const ObservedPrompt& run, size_t position,
                 double tie) {
  for (size_t i = 0; i < exact.layers.size(); ++i) {
    bool differs = false;
    for (size_t p = 0; p <= position; ++p) {
      if (!exact.layers[i].has(p) || run.layers[i].chose_as(exact.layers[i], p)) continue;
      if (!(static_cast<double>(exact.layers[i].gap(p)) < tie)) return false;
      differs = true;
    }
    if (differs) return true;
  }
  return false;
}

// Judges one prompt.
class Judge {
 public:
  Judge(const ReferencePrompt& prompt, const ObservedPrompt& exact, const ObservedPrompt& run,
        const VerifyRules& rules)
      : prompt_(prompt), exact_(exact), run_(run), rules_(rules) {}

  PromptReport report() {
    const size_t last = prompt_.input.size() - 1;
    report_.prompt_tokens = static_cast<int64_t>(prompt_.input.size());
    for (size_t i = 0; i < prompt_.argmax_all.size(); ++i) {
      ++report_.positions;
      if (agrees(i, prompt_.argmax_all[i], exact_.margins[i])) ++report_.positions_agreed;
    }
    for (size_t step = 0; step < prompt_.greedy.size(); ++step) {
      const double margin =
          prompt_.margins.empty() ? exact_.margins[last + step] : prompt_.margins[step];
      ++report_.greedy_tokens;
      if (agrees(last + step, prompt_.greedy[step], margin)) ++report_.greedy_agreed;
    }
    report_.logit_error = run_.logit_error;
    report_.routing_tie = routing_tie(exact_, run_, last, rules_.tie);
    const bool logits_agree =
        !report_.logit_error || report_.routing_tie || *report_.logit_error <= rules_.logits;
    report_.passed = report_.wrong_tokens == 0 && logits_agree;
    return report_;
  }

 private:
  // Whether the run says this token at a position; counts it where the margin is clear.
  bool agrees(size_t position, TokenId expected, double margin) {
    const bool agreed = run_.best[position] == expected;
    if (margin <= rules_.margin) return agreed;
    ++report_.clear;
    if (agreed) {
      ++report_.clear_agreed;
    } else if (routing_tie(exact_, run_, position, rules_.tie)) {
      ++report_.ties;
    } else {
      ++report_.wrong_tokens;
    }
    return agreed;
  }

  const ReferencePrompt& prompt_;
  const ObservedPrompt& exact_;
  const ObservedPrompt& run_;
  const VerifyRules& rules_;
  PromptReport report_;
};

}  // namespace

VerifyRules verify_rules(Precision precision) {
  if (precision == Precision::f32) {
    return {.logits = 1e-4, .margin = 1e-3, .least_share = 1.0, .tie = 0.0};
  }
  return {.logits = 2e-2, .margin = 5e-2, .least_share = 0.98, .tie = 2e-2};
}

double VerifyReport::share() const {
  return clear == 0 ? 1.0 : static_cast<double>(clear_agreed) / static_cast<double>(clear);
}

VerifyReport verify(const std::vector<ReferencePrompt>& prompts,
                    const std::vector<ObservedPrompt>& exact,
                    const std::vector<ObservedPrompt>& run, const VerifyRules& rules) {
  VerifyReport report;
  report.passed = true;
  for (size_t i = 0; i < prompts.size(); ++i) {
    const PromptReport& prompt =
        report.prompts.emplace_back(Judge(prompts[i], exact[i], run[i], rules).report());
    report.clear += prompt.clear;
    report.clear_agreed += prompt.clear_agreed;
    report.passed = report.passed && prompt.passed;
  }
  report.passed = report.passed && report.share() >= rules.least_share;
  return report;
}

}  // namespace klotski
