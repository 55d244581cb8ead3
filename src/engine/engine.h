#pragma once

#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/ids.h"
#include "engine/prepared_model.h"
#include "engine/sampling.h"
#include "kv/transaction.h"
#include "schedule/pass_forming.h"
#include "schedule/token_scheduler.h"

namespace klotski {

using SequenceId = Id<struct SequenceTag>;

struct Request {
  std::vector<TokenId> prompt;
  SamplingOptions sampling;
  int64_t max_tokens = 0;            // at least one
  std::vector<TokenId> stop_tokens;  // the sequence ends when one is chosen
  // The first generated tokens, which are taken whatever the model would choose.
  std::vector<TokenId> given_tokens{};
  // Progress then has the probabilities of each token, and of this many alternatives.
  std::optional<int64_t> logprobs{};
};

enum class Finish {
  not_yet,
  stop_token,
  length,  // max_tokens, or the model's positions are used up
  failed,  // see Progress::error
};

// A token that a sequence gained in a step, or the reason why it gains no more.
struct Progress {
  SequenceId sequence;
  TokenId token = 0;  // meaningless where finish is `failed`
  Finish finish = Finish::not_yet;
  std::string error{};  // the reason of a failure, in one line
  ErrorKind error_kind = ErrorKind::internal;
  std::optional<PositionLogprobs> logprobs{};  // where the request asks for them
};

// Runs sequences of any lengths together, a step at a time. The tokens of a sequence do not depend
// on the sequences that run with it. Sequences are spread over the micro-batches of one group and
// stay where they are put until they end. Where more wait than can be admitted, and the pipeline's
// predictor can tell from tokens alone, those that will use the same experts are admitted together
// (schedule/token_scheduler.h); else in the order in which they came.
class Engine {
 public:
  explicit Engine(Pipeline& pipeline);

  // The work that a single request may come to need; refuses requests that submit() would refuse as
  // usage.
  static Workload workload(const ModelDescription& model, const Request& request);

  // Refuses (usage) a prompt that is empty, too long or has ids outside the vocabulary, and
  // (does_not_fit) one that can never fit the KV limit. The sequence waits until there is room.
  SequenceId submit(Request request);
  void cancel(SequenceId id);
  bool idle() const { return sequences_.empty(); }
  int64_t running() const;  // sequences that were admitted
  int64_t waiting() const { return std::ssize(sequences_) - running(); }

  // Tokens of all sequences that are not computed yet: the rest of their prompts, mostly.
  int64_t pending_tokens() const;

  // Computes one pass and returns the progress of its sequences; a finished sequence is gone. Where
  // a weight cannot be read all sequences of the pass fail. Does nothing where the engine is idle.
  std::vector<Progress> step();

  // The pass that the last step computed. Its rows name sequences by their order of arrival among
  // all that had not ended before the step.
  const FormedPass& last_pass() const { return pass_; }

 private:
  struct Sequence {
    SequenceId id;
    Request request;
    Sampler sampler;
    std::vector<TokenId> tokens;  // prompt and generated; the KV cache holds the first of them
    int64_t generated = 0;
    std::optional<size_t> micro_batch;  // once it is admitted
    KvSequence kv;
    RequestShares expected_shares{};  // once they were predicted
    int64_t overtaken = 0;            // sequences that came later and were admitted before it

    int64_t most_tokens(const ModelDescription& model) const;

    int64_t pending() const { return static_cast<int64_t>(tokens.size()) - kv.length(); }
  };

  // A micro-batch about to run, and whose tokens it computes.
  struct Formed {
    MicroBatch micro_batch;
    std::vector<Sequence*> members;
  };

  std::vector<PassSequence> admit();
  std::vector<size_t> admission_order(std::span<const PassSequence> sequences) const;
  void count_overtaken(std::span<const PassSequence> admitted);
  void predict_experts(std::span<const PassSequence> sequences);
  std::vector<Formed> form_group(std::span<const PassSequence> sequences, KvTransaction& step);
  Progress advance(Sequence& sequence, std::optional<TokenId> token) const;
  Progress sample(Sequence& sequence, std::span<const float> logits) const;
  std::vector<Progress> run_pass(std::span<const PassSequence> sequences);
  void compute(std::vector<Formed>& group, std::vector<Progress>& progress);
  static std::vector<Progress> all_failed(const std::vector<Formed>& group, const Error& error);
  void retire(const std::vector<Progress>& progress);

  Pipeline& pipeline_;
  PassForming forming_;
  FormedPass pass_;
  int32_t next_id_ = 0;
  // Whether a sequence came or ended since the last admission; else none can be admitted as long as
  // some run.
  bool room_or_requests_are_new_ = false;
  std::vector<std::unique_ptr<Sequence>> sequences_;  // in order of arrival
};

}  // namespace klotski
