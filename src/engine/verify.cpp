#include "engine/verify.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/json.h"
#include "engine/sampling.h"

namespace klotski {

namespace {

std::vector<TokenId> tokens_of(const JsonFields& prompt, std::string_view key,
                               const ModelDescription& model) {
  const auto ids = prompt.integers(key, 0, model.vocabulary - 1);
  return ids ? std::vector<TokenId>(ids->begin(), ids->end()) : std::vector<TokenId>();
}

ReferencePrompt parse_prompt(const JsonFields& fields, const ModelDescription& model) {
  ReferencePrompt prompt;
  prompt.input = tokens_of(fields, "input_ids", model);
  prompt.argmax_all = tokens_of(fields, "argmax_all", model);
  prompt.greedy = tokens_of(fields, "greedy", model);
  constexpr double kAny = std::numeric_limits<float>::max();
  if (const auto logits = fields.numbers("last_logits", -kAny, kAny)) {
    prompt.last_logits.assign(logits->begin(), logits->end());
  }
  prompt.margins = fields.numbers("margins", 0.0, kAny).value_or(std::vector<double>());

  if (prompt.input.empty()) fields.refuse("input_ids", "at least one token id");
  const auto size_must_be = [&](std::string_view key, size_t found, size_t expected) {
    if (found != 0 && found != expected) fields.refuse(key, fmt::format("{} entries", expected));
  };
  size_must_be("last_logits", prompt.last_logits.size(), static_cast<size_t>(model.vocabulary));
  size_must_be("argmax_all", prompt.argmax_all.size(), prompt.input.size());
  size_must_be("margins", prompt.margins.size(), prompt.greedy.size());
  if (prompt.last_logits.empty() && prompt.argmax_all.empty() && prompt.greedy.empty()) {
    fields.refuse("greedy", "last_logits, argmax_all or greedy to compare with");
  }
  const auto positions = static_cast<int64_t>(prompt.input.size() + prompt.greedy.size());
  if (positions > model.max_positions) {
    fields.refuse("greedy",
                  fmt::format("prompt and continuation within {} positions", model.max_positions));
  }
  return prompt;
}

// The error of logits that hold a NaN or an infinity: a number that JSON can carry.
constexpr double kBrokenLogits = 1e300;

double relative_error(std::span<const float> found, const std::vector<float>& expected) {
  double largest = 0.0;
  double difference = 0.0;
  for (size_t i = 0; i < expected.size(); ++i) {
    largest = std::max(largest, std::abs(static_cast<double>(expected[i])));
    const double here = std::abs(static_cast<double>(found[i]) - static_cast<double>(expected[i]));
    difference = std::max(difference, std::isfinite(here) ? here : kBrokenLogits);
  }
  return std::min(difference / std::max(largest, 1e-30), kBrokenLogits);
}

// By how much the best logit leads the second.
double margin_of(std::span<const float> logits) {
  float best = -std::numeric_limits<float>::infinity();
  float second = best;
  for (const float logit : logits) {
    if (logit > best) {
      second = best;
      best = logit;
    } else {
      second = std::max(second, logit);
    }
  }
  return static_cast<double>(best) - static_cast<double>(second);
}

constexpr size_t kPieceTokens = 64;  // of a prompt computed at once

// The runs of one verification.
class Verification {
 public:
  using Progress = std::function<void(uint64_t done, uint64_t total)>;

  Verification(Pipeline& pipeline, const std::vector<ReferencePrompt>& prompts,
               const VerifyTolerance& tolerance, const Progress& progress)
      : pipeline_(pipeline),
        prompts_(prompts),
        tolerance_(tolerance),
        progress_(progress),
        sequences_(prompts.size()),
        reports_(prompts.size()) {}

  std::vector<PromptReport> run() {
    for (size_t first = 0; first < prompts_.size();) {
      const size_t end = place_from(first);
      run_wave(first, end);
      first = end;
    }
    for (PromptReport& report : reports_) {
      report.passed = report.wrong_tokens == 0 &&
                      (!report.logit_error || *report.logit_error <= tolerance_.logits);
    }
    return std::move(reports_);
  }

 private:
  // Makes room for as many prompts as one group can run together; returns the first beyond them.
  size_t place_from(size_t first) {
    const auto most = static_cast<size_t>(pipeline_.policy().group_sequences());
    size_t end = first;
    while (end < prompts_.size() && end - first < most) {
      const size_t tokens = prompts_[end].input.size() + prompts_[end].greedy.size();
      if (!pipeline_.cache().place(sequences_[end], static_cast<int64_t>(tokens),
                                   static_cast<int64_t>(kPieceTokens))) {
        break;
      }
      ++end;
    }
    if (end == first) fail(ErrorKind::internal, "the verification's KV cache is too small");
    return end;
  }

  void run_wave(size_t first, size_t end) {
    size_t longest = 0;
    for (size_t i = first; i < end; ++i) {
      run_prompt(i);
      longest = std::max(longest, prompts_[i].greedy.size());
    }
    for (size_t step = 1; step < longest; ++step) run_decode(first, end, step);
    for (size_t i = first; i < end; ++i) pipeline_.cache().release(sequences_[i]);
  }

  static uint64_t total_tokens(const std::vector<ReferencePrompt>& prompts) {
    uint64_t total = 0;
    for (const ReferencePrompt& prompt : prompts) {
      total += prompt.input.size() + std::max<size_t>(prompt.greedy.size(), 1) - 1;
    }
    return total;
  }

  static std::span<const float> row(Rows logits, size_t index) {
    return {logits.row(static_cast<int64_t>(index)), static_cast<size_t>(logits.width)};
  }

  // Adds the next tokens of prompt `i` to a micro-batch.
  void append(MicroBatch& micro_batch, size_t i, std::span<const TokenId> tokens, LogitsOf wanted) {
    const auto prompt = static_cast<int64_t>(prompts_[i].input.size());
    const int64_t past = sequences_[i].length();
    if (!pipeline_.cache().reserve(sequences_[i], static_cast<int64_t>(tokens.size()))) {
      fail(ErrorKind::internal, "the verification's KV cache is too small");
    }
    micro_batch.batch.append(past, tokens, std::max(prompt, past + 1), wanted);
    micro_batch.sequences.push_back(&sequences_[i]);
  }

  void run_group(const std::vector<MicroBatch>& group, const Pipeline::TakeLogits& take) {
    pipeline_.forward(group, take);
    for (const MicroBatch& micro_batch : group) {
      for (size_t i = 0; i < micro_batch.sequences.size(); ++i) {
        pipeline_.cache().commit(*micro_batch.sequences[i], micro_batch.batch.sequences[i].tokens);
      }
      done_ += static_cast<uint64_t>(micro_batch.batch.rows());
    }
    if (progress_) progress_(done_, total_tokens(prompts_));
  }

  // In pieces, so that the logits of every position need little memory at a time.
  void run_prompt(size_t i) {
    const ReferencePrompt& prompt = prompts_[i];
    reports_[i].prompt_tokens = static_cast<int64_t>(prompt.input.size());
    for (size_t begin = 0; begin < prompt.input.size(); begin += kPieceTokens) {
      const auto piece = std::span(prompt.input)
                             .subspan(begin, std::min(kPieceTokens, prompt.input.size() - begin));
      const bool every = !prompt.argmax_all.empty();
      std::vector<MicroBatch> group(1);
      append(group[0], i, piece, every ? LogitsOf::every_token : LogitsOf::last_token);
      run_group(group, [&](size_t, Rows logits) {
        for (size_t p = 0; every && p < piece.size(); ++p) {
          compare_position(i, begin + p, row(logits, p));
        }
        if (begin + piece.size() < prompt.input.size()) return;
        const std::span<const float> last = row(logits, static_cast<size_t>(logits.count) - 1);
        if (!prompt.last_logits.empty()) {
          reports_[i].logit_error = relative_error(last, prompt.last_logits);
        }
        if (!prompt.greedy.empty()) compare_greedy(i, 0, last);
      });
    }
  }

  // The prompts of a wave that still go on, spread over the micro-batches of one group.
  void run_decode(size_t first, size_t end, size_t step) {
    std::vector<size_t> going_on;
    for (size_t i = first; i < end; ++i) {
      if (step < prompts_[i].greedy.size()) going_on.push_back(i);
    }
    const auto per_batch = static_cast<size_t>(pipeline_.policy().micro_batch);
    std::vector<MicroBatch> group((going_on.size() + per_batch - 1) / per_batch);
    for (size_t at = 0; at < going_on.size(); ++at) {
      append(group[at / per_batch], going_on[at],
             std::span(prompts_[going_on[at]].greedy).subspan(step - 1, 1), LogitsOf::last_token);
    }
    run_group(group, [&](size_t k, Rows logits) {
      for (size_t r = 0; r < static_cast<size_t>(logits.count); ++r) {
        compare_greedy(going_on[k * per_batch + r], step, row(logits, r));
      }
    });
  }

  void compare_position(size_t i, size_t position, std::span<const float> logits) {
    PromptReport& report = reports_[i];
    ++report.positions;
    if (most_likely(logits) == prompts_[i].argmax_all[position]) {
      ++report.positions_agreed;
    } else if (!(margin_of(logits) <= tolerance_.margin)) {
      ++report.wrong_tokens;
    }
  }

  void compare_greedy(size_t i, size_t step, std::span<const float> logits) {
    PromptReport& report = reports_[i];
    const ReferencePrompt& prompt = prompts_[i];
    ++report.greedy_tokens;
    if (most_likely(logits) == prompt.greedy[step]) {
      ++report.greedy_agreed;
      return;
    }
    const double margin = prompt.margins.empty() ? margin_of(logits) : prompt.margins[step];
    if (!(margin <= tolerance_.margin)) ++report.wrong_tokens;
  }

  Pipeline& pipeline_;
  const std::vector<ReferencePrompt>& prompts_;
  VerifyTolerance tolerance_;
  const Progress& progress_;
  uint64_t done_ = 0;  // tokens
  std::vector<KvSequence> sequences_;
  std::vector<PromptReport> reports_;
};

}  // namespace

std::vector<ReferencePrompt> parse_reference(std::string_view json_text, std::string_view what,
                                             const ModelDescription& model) {
  const Json json = parse_json(json_text, what);
  const JsonFields fields(json, std::string(what));
  const Json* list = fields.find("prompts");
  if (!list || !list->is_array() || list->empty()) {
    fields.refuse("prompts", "an array with at least one prompt");
  }
  std::vector<ReferencePrompt> prompts;
  for (size_t i = 0; i < list->size(); ++i) {
    prompts.push_back(parse_prompt(
        JsonFields((*list)[i], std::string(what), fmt::format("prompts[{}]", i)), model));
  }
  return prompts;
}

Workload verify_workload(const std::vector<ReferencePrompt>& prompts) {
  Workload workload{.sequences = static_cast<int64_t>(prompts.size()),
                    .logit_rows = static_cast<int64_t>(kPieceTokens)};
  for (const ReferencePrompt& prompt : prompts) {
    const auto input = static_cast<int64_t>(prompt.input.size());
    workload.prompt_tokens = std::max(workload.prompt_tokens, input);
    workload.tokens_per_sequence =
        std::max(workload.tokens_per_sequence, input + static_cast<int64_t>(prompt.greedy.size()));
  }
  workload.prompt_tokens = std::min(workload.prompt_tokens, static_cast<int64_t>(kPieceTokens));
  return workload;
}

std::vector<PromptReport> verify(Pipeline& pipeline, const std::vector<ReferencePrompt>& prompts,
                                 const VerifyTolerance& tolerance,
                                 const std::function<void(uint64_t, uint64_t)>& progress) {
  return Verification(pipeline, prompts, tolerance, progress).run();
}

}  // namespace klotski
