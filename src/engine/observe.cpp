#include "engine/observe.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "engine/sampling.h"
#include "kv/transaction.h"

namespace klotski {

namespace {

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

// The lead of the best logit over the second.
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

constexpr size_t kPieceTokens = 64;  // tokens of a prompt computed at once

// Positions of a prompt and its continuation that are computed: the last token only ends it.
size_t computed_positions(const ReferencePrompt& prompt) {
  return prompt.input.size() + std::max<size_t>(prompt.greedy.size(), 1) - 1;
}

uint64_t total_tokens(const std::vector<ReferencePrompt>& prompts) {
  uint64_t total = 0;
  for (const ReferencePrompt& prompt : prompts) total += computed_positions(prompt);
  return total;
}

class Observation {
 public:
  using Progress = std::function<void(uint64_t done, uint64_t total)>;

  Observation(Pipeline& pipeline, const std::vector<ReferencePrompt>& prompts,
              const Progress& progress)
      : pipeline_(pipeline), prompts_(prompts), progress_(progress), observed_(prompts.size()) {
    const RoutingTraceShape shape = routing_shape(pipeline.description());
    for (size_t i = 0; i < prompts.size(); ++i) {
      const size_t positions = computed_positions(prompts[i]);
      observed_[i].best.assign(positions, TokenId{-1});
      observed_[i].margins.assign(positions, 0.0);
      for (const RoutedLayer& routed : shape.layers) {
        ObservedLayer& layer = observed_[i].layers.emplace_back();
        layer.choices = routed.top_k;
        const bool decodes = routed.layer.value >= pipeline.description().encoder_layers();
        layer.first = decodes ? static_cast<size_t>(prompts[i].encoded) : 0;
        layer.experts.reserve(positions * static_cast<size_t>(routed.top_k));
        layer.gaps.reserve(positions);
      }
    }
  }

  std::vector<ObservedPrompt> run() {
    for (size_t first = 0; first < prompts_.size();) {
      first_of_wave_ = first;
      PlacedSequences& wave = wave_.emplace(pipeline_.cache());
      place_wave();
      run_wave(first, first + wave.size());
      for (size_t i = 0; i < wave.size(); ++i) pipeline_.end_sequence(wave[i]);
      first += wave.size();
    }
    return std::move(observed_);
  }

 private:
  // Makes room for as many prompts, from first_of_wave_ on, as one group can run together.
  void place_wave() {
    const auto most = std::min(static_cast<size_t>(pipeline_.policy().group.sequences()),
                               prompts_.size() - first_of_wave_);
    while (wave_->size() < most) {
      const ReferencePrompt& prompt = prompts_[first_of_wave_ + wave_->size()];
      const size_t tokens = prompt.input.size() + prompt.greedy.size();
      const auto encoded = static_cast<size_t>(prompt.encoded);
      if (!wave_->place(static_cast<int64_t>(tokens),
                        static_cast<int64_t>(std::max(kPieceTokens, encoded)))) {
        break;
      }
    }
    if (wave_->size() == 0) fail(ErrorKind::internal, "the verification's KV cache is too small");
  }

  void run_wave(size_t first, size_t end) {
    size_t longest = 0;
    for (size_t i = first; i < end; ++i) {
      run_prompt(i);
      longest = std::max(longest, prompts_[i].greedy.size());
    }
    for (size_t step = 1; step < longest; ++step) run_decode(first, end, step);
  }

  static std::span<const float> row(Rows logits, size_t index) {
    return {logits.row(static_cast<int64_t>(index)), static_cast<size_t>(logits.width)};
  }

  // One pass: its micro-batches, and the prompts whose tokens they compute, in order.
  struct Pass {
    KvTransaction step;
    std::vector<MicroBatch> group;
    std::vector<size_t> prompts;
  };

  // Adds the next tokens of prompt `i` to a micro-batch of the pass.
  void append(Pass& pass, size_t micro_batch, size_t i, std::span<const TokenId> tokens,
              LogitsOf wanted) {
    KvSequence& sequence = (*wave_)[i - first_of_wave_];
    const auto prompt = static_cast<int64_t>(prompts_[i].input.size());
    const int64_t past = sequence.length();
    pass.step.reserve(sequence, static_cast<int64_t>(tokens.size()));
    MicroBatch& to = pass.group[micro_batch];
    to.batch.append(past, tokens, std::max(prompt, past + 1), wanted, prompts_[i].encoded);
    to.sequences.push_back(&sequence);
    pass.prompts.push_back(i);
  }

  void run_pass(Pass& pass, const Pipeline::TakeLogits& take) {
    pipeline_.forward(pass.group, take);
    int64_t row = 0;  // index in the group
    auto prompt = pass.prompts.begin();
    for (const MicroBatch& micro_batch : pass.group) {
      const PassLayers ran = pipeline_.description().pass_layers(micro_batch.batch.encodes());
      for (const BatchSequence& rows : micro_batch.batch.sequences) {
        take_routing(observed_[*prompt++], ran, row, rows.tokens);
        row += rows.tokens;
      }
    }
    pass.step.commit();
    done_ += static_cast<uint64_t>(row);
    if (progress_) progress_(done_, total_tokens(prompts_));
  }

  // Takes the experts of one row, with their weights among those of all rows.
  static void take_choice(ObservedLayer& layer, std::span<const ExpertId> experts,
                          const std::vector<float>& weights, int64_t row) {
    std::vector<std::pair<ExpertId, float>> chosen;
    for (size_t k = 0; k < experts.size(); ++k) {
      const size_t index = static_cast<size_t>(row) * experts.size() + k;
      chosen.emplace_back(experts[k], index < weights.size() ? weights[index] : 0.0f);
    }
    std::sort(chosen.begin(), chosen.end());
    for (const auto& [expert, weight] : chosen) {
      layer.experts.push_back(expert);
      layer.weights.push_back(weight);
    }
  }

  // Takes the choices of a prompt's next positions: these rows of the last pass, in the routed
  // layers that it ran.
  void take_routing(ObservedPrompt& observed, PassLayers ran, int64_t first_row, int64_t rows) {
    const GroupChoices& choices = pipeline_.choices();
    const std::vector<RoutedLayer>& routed = pipeline_.predictor().shape().layers;
    size_t number = 0;  // number among the layers that ran
    for (size_t i = 0; i < observed.layers.size(); ++i) {
      if (routed[i].layer.value < ran.first || !ran.feeds_forward(routed[i].layer)) continue;
      ObservedLayer& layer = observed.layers[i];
      for (int64_t row = first_row; row < first_row + rows; ++row) {
        take_choice(layer, choices.token(i, row), pipeline_.router_weights()[number], row);
      }
      const std::vector<float>& gaps = pipeline_.router_gaps()[number++];
      if (gaps.empty()) fail(ErrorKind::internal, "the pipeline keeps no router gaps");
      layer.gaps.insert(layer.gaps.end(), gaps.begin() + first_row,
                        gaps.begin() + first_row + rows);
    }
  }

  void take_token(size_t i, size_t position, std::span<const float> logits) {
    observed_[i].best[position] = most_likely(logits);
    observed_[i].margins[position] = margin_of(logits);
  }

  // Runs the input of a prompt's encoder in one piece.
  void encode_prompt(size_t i) {
    const ReferencePrompt& prompt = prompts_[i];
    Pass pass{KvTransaction(pipeline_.cache()), std::vector<MicroBatch>(1), {}};
    append(pass, 0, i, std::span(prompt.input).first(static_cast<size_t>(prompt.encoded)),
           LogitsOf::none);
    run_pass(pass, [](size_t, Rows) {});
  }

  // Runs a prompt in pieces, so that the logits of every position need little memory at a time.
  void run_prompt(size_t i) {
    const ReferencePrompt& prompt = prompts_[i];
    if (prompt.encoded > 0) encode_prompt(i);
    for (auto begin = static_cast<size_t>(prompt.encoded); begin < prompt.input.size();
         begin += kPieceTokens) {
      const auto piece = std::span(prompt.input)
                             .subspan(begin, std::min(kPieceTokens, prompt.input.size() - begin));
      const bool every = !prompt.argmax_all.empty();
      Pass pass{KvTransaction(pipeline_.cache()), std::vector<MicroBatch>(1), {}};
      append(pass, 0, i, piece, every ? LogitsOf::every_token : LogitsOf::last_token);
      run_pass(pass, [&](size_t, Rows logits) {
        const auto count = static_cast<size_t>(logits.count);
        const size_t end = begin + piece.size();
        for (size_t r = 0; r < count; ++r) take_token(i, end - count + r, row(logits, r));
        if (end == prompt.input.size() && !prompt.last_logits.empty()) {
          observed_[i].logit_error = relative_error(row(logits, count - 1), prompt.last_logits);
        }
      });
    }
  }

  // The prompts of a wave that still go on, spread over the micro-batches of one group.
  void run_decode(size_t first, size_t end, size_t step) {
    std::vector<size_t> going_on;
    for (size_t i = first; i < end; ++i) {
      if (step < prompts_[i].greedy.size()) going_on.push_back(i);
    }
    const auto per_batch = static_cast<size_t>(pipeline_.policy().group.micro_batch);
    const size_t batches = (going_on.size() + per_batch - 1) / per_batch;
    Pass pass{KvTransaction(pipeline_.cache()), std::vector<MicroBatch>(batches), {}};
    for (size_t at = 0; at < going_on.size(); ++at) {
      append(pass, at / per_batch, going_on[at],
             std::span(prompts_[going_on[at]].greedy).subspan(step - 1, 1), LogitsOf::last_token);
    }
    run_pass(pass, [&](size_t k, Rows logits) {
      for (size_t r = 0; r < static_cast<size_t>(logits.count); ++r) {
        const size_t i = going_on[k * per_batch + r];
        take_token(i, prompts_[i].input.size() - 1 + step, row(logits, r));
      }
    });
  }

  Pipeline& pipeline_;
  const std::vector<ReferencePrompt>& prompts_;
  const Progress& progress_;
  uint64_t done_ = 0;                    // tokens
  size_t first_of_wave_ = 0;             // prompt
  std::optional<PlacedSequences> wave_;  // prompts that run together
  std::vector<ObservedPrompt> observed_;
};

}  // namespace

bool ObservedLayer::chose_as(const ObservedLayer& other, size_t position) const {
  const auto begin = static_cast<std::ptrdiff_t>(position - first) * choices;
  const auto nearly = [](float a, float b) { return std::abs(a - b) < 0.1f; };
  return std::equal(experts.begin() + begin, experts.begin() + begin + choices,
                    other.experts.begin() + begin) &&
         std::equal(weights.begin() + begin, weights.begin() + begin + choices,
                    other.weights.begin() + begin, nearly);
}

std::vector<ObservedPrompt> observe(Pipeline& pipeline, const std::vector<ReferencePrompt>& prompts,
                                    const std::function<void(uint64_t, uint64_t)>& progress) {
  return Observation(pipeline, prompts, progress).run();
}

Workload observe_workload(const std::vector<ReferencePrompt>& prompts,
                          const ModelDescription& model, int runs) {
  Workload workload{.sequences = static_cast<int64_t>(prompts.size()),
                    .logit_rows = static_cast<int64_t>(kPieceTokens)};
  for (const ReferencePrompt& prompt : prompts) {
    const auto input = static_cast<int64_t>(prompt.input.size());
    workload.prompt_tokens = std::max(workload.prompt_tokens, input);
    workload.tokens_per_sequence =
        std::max(workload.tokens_per_sequence, input + static_cast<int64_t>(prompt.greedy.size()));
  }
  if (!model.encoder) {
    workload.prompt_tokens = std::min(workload.prompt_tokens, static_cast<int64_t>(kPieceTokens));
  }

  uint64_t position_bytes = sizeof(TokenId) + sizeof(double);
  for (const RoutedLayer& layer : routing_shape(model).layers) {
    position_bytes += static_cast<uint64_t>(layer.top_k) * sizeof(ExpertId) + sizeof(float);
  }
  workload.input_bytes = static_cast<uint64_t>(runs) * total_tokens(prompts) * position_bytes;
  return workload;
}

}  // namespace klotski
