#pragma once

#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/ids.h"
#include "engine/draft_budget.h"
#include "engine/prepared_model.h"
#include "engine/sampling.h"
#include "kv/transaction.h"
#include "schedule/pass_forming.h"
#include "schedule/token_scheduler.h"

namespace klotski {

using SequenceId = Id<struct SequenceTag>;

struct Request {
  std::vector<TokenId> prompt;  // of a model with an encoder: the encoder's input
  SamplingOptions sampling;
  int64_t max_tokens = 0;            // at least one
  std::vector<TokenId> stop_tokens;  // the sequence ends when one is chosen
  // The first generated tokens, which are taken whatever the model would choose.
  std::vector<TokenId> given_tokens{};
  // Progress then has the probabilities of each token, and of this many alternatives.
  std::optional<int64_t> logprobs{};
  // Tokens that the decoder of a model with an encoder begins with, after its start token.
  std::vector<TokenId> decoder_prompt{};
};

enum class Finish {
  not_yet,
  stop_token,
  length,  // max_tokens, or the model's positions are used up
  failed,  // see Progress::error
};

// When the pages that a sequence may come to need are booked.
enum class KvBooking {
  whole,        // all at once, before it runs: an admitted sequence never lacks a page
  as_it_grows,  // those of its tokens so far; see EngineOptions
};

// How an engine shares its memory and its passes among sequences.
struct EngineOptions {
  // Most rows of a pass in which some sequence generates: prompts then come in slices and do not
  // hold up those that generate. 0: as many as the policy's micro-batches have.
  int64_t pass_rows = 0;
  // Booking as sequences grow lets more of them run where most end before their longest. A sequence
  // is admitted where its tokens so far find room and one more page is free for every sequence that
  // runs. Where pages run out all the same, the sequence that came last is preempted: it gives its
  // pages back, waits, and its tokens so far are computed anew. The tokens stay the same.
  KvBooking booking = KvBooking::whole;
  // Sequences that begin with the same tokens share the pages of these; pages stay for later
  // sequences while nobody else needs their memory. Only where all that is kept of a sequence
  // depends on its tokens alone, and no recurrent state is kept.
  bool prefix_cache = false;
  // Drafts as many tokens as the policy allows, whether they are worth their rows or not. For
  // tests.
  bool drafts_unjudged = false;
};

// How often an engine did things that cost or save work.
struct EngineCounters {
  int64_t preemptions = 0;
  PrefixCounters prefix{};
  DraftCounts drafts{};
};

// A token that a sequence gained in a step, or the reason why it gains no more. A sequence whose
// drafted tokens were right gains several in a step, one after the other.
struct Progress {
  SequenceId sequence;
  TokenId token = 0;  // meaningless where finish is `failed`
  Finish finish = Finish::not_yet;
  std::string error{};  // the reason of a failure, in one line
  ErrorKind error_kind = ErrorKind::internal;
  std::optional<PositionLogprobs> logprobs{};  // where the request asks for them
  DraftCounts drafts{};                        // of the sequence so far
};

// Runs sequences of any lengths together, a step at a time. The tokens of a sequence do not depend
// on the sequences that run with it. Sequences are spread over the micro-batches of one group and
// stay where they are put until they end. Where more wait than can be admitted, and the pipeline's
// predictor can tell from tokens alone, those that will use the same experts are admitted together
// (schedule/token_scheduler.h); else in the order in which they came, without those that find no
// memory. A sequence that kMostOvertaken later ones have overtaken so holds up all behind it until
// it finds memory.
//
// Where the policy says so, sequences speculate: behind its last token a sequence has drafted ones
// (prompt_lookup) computed, as many as a DraftBudget finds worth their rows. The sampler chooses
// after each of them as it would have without drafts, until it chooses another token than the
// drafted one; positions behind that are taken back. So the tokens are those of a run without
// drafts, sampled ones too.
class Engine {
 public:
  explicit Engine(Pipeline& pipeline, const EngineOptions& options = {});

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

  EngineCounters counters() const;

  // Tokens of all sequences that are not computed yet: the rest of their prompts, mostly.
  int64_t pending_tokens() const;

  // Computes one pass and returns the progress of its sequences; a finished sequence is gone. Where
  // a weight cannot be read all sequences of the pass fail. Does nothing where the engine is idle,
  // and computes nothing where the only sequence had to be preempted.
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
    int64_t encoded = 0;          // tokens that are an encoder's input
    int64_t generated = 0;
    std::optional<size_t> micro_batch;  // once it is admitted
    KvSequence kv;
    RequestShares expected_shares{};  // once they were predicted
    int64_t overtaken = 0;            // sequences that came later and were admitted before it
    std::vector<TokenId> drafts{};    // drafted tokens of the pass at hand
    DraftCounts draft_counts{};
    AcceptanceRate acceptance{};

    int64_t most_tokens(const ModelDescription& model) const;

    int64_t pending() const { return static_cast<int64_t>(tokens.size()) - kv.length(); }
    bool encodes() const { return kv.length() < encoded; }
  };

  // A micro-batch about to run, and the sequences whose tokens it computes.
  struct Formed {
    MicroBatch micro_batch;
    std::vector<Sequence*> members;
  };

  std::vector<PassSequence> admit();
  [[nodiscard]] bool place(Sequence& sequence, int64_t running);
  void make_room(std::vector<PassSequence>& sequences);
  std::optional<size_t> first_to_preempt(std::span<const PassSequence> sequences) const;
  void preempt(Sequence& sequence);
  std::vector<size_t> admission_order(std::span<const PassSequence> sequences) const;
  void count_overtaken(std::span<const PassSequence> admitted);
  void predict_experts(std::span<const PassSequence> sequences);
  void propose_drafts(std::vector<PassSequence>& sequences);
  int64_t most_drafts(const Sequence& sequence) const;
  // The progress that the row behind this many drafted tokens gives.
  using Next = std::function<Progress(int64_t drafted)>;
  void take_tokens(Sequence& sequence, const Next& next, std::vector<Progress>& progress);
  static void keep_accepted(const std::vector<Formed>& group, KvTransaction& step);
  void count_pass(const std::vector<Progress>& progress, double seconds);
  std::vector<Formed> form_group(KvTransaction& step);
  Progress advance(Sequence& sequence, std::optional<TokenId> token) const;
  Progress sample(Sequence& sequence, std::span<const float> logits) const;
  std::vector<Progress> run_pass();
  void compute(std::vector<Formed>& group, std::vector<Progress>& progress);
  void publish_prefixes(const std::vector<Formed>& group);
  static std::vector<Progress> all_failed(const std::vector<Formed>& group, const Error& error);
  void retire(const std::vector<Progress>& progress);

  Pipeline& pipeline_;
  EngineOptions options_;
  PassForming forming_;
  FormedPass pass_;
  int32_t next_id_ = 0;
  int64_t preemptions_ = 0;
  DraftBudget draft_budget_;
  // Whether a sequence came or ended since the last admission; else none can be admitted as long as
  // some run.
  bool room_or_requests_are_new_ = false;
  std::vector<std::unique_ptr<Sequence>> sequences_;  // in order of arrival
};

}  // namespace klotski
