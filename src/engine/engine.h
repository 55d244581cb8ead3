#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "engine/resident_model.h"
#include "engine/sampling.h"
#include "kernels/ops.h"
#include "kv/paged_cache.h"

namespace klotski {

using SequenceId = Id<struct SequenceTag>;

struct Request {
  std::vector<TokenId> prompt;
  SamplingOptions sampling;
  int64_t max_tokens = 0;            // at least one
  std::vector<TokenId> stop_tokens;  // the sequence ends when one is chosen
};

enum class Finish {
  not_yet,
  stop_token,
  length,  // max_tokens, or the model's positions are used up
  failed,  // the model gave logits from which no token can be chosen
};

// A token that a sequence gained in a step, or the reason why it gains no more.
struct Progress {
  SequenceId sequence;
  TokenId token = 0;  // meaningless where finish is `failed`
  Finish finish = Finish::not_yet;
};

struct EngineLimits {
  uint64_t kv_bytes = 0;
  int64_t rows_per_step = 512;  // tokens computed at once; a long prompt takes several steps
};

// Runs sequences of any lengths together, a step at a time. What a sequence produces does not
// depend on which others run beside it.
class Engine {
 public:
  Engine(const ResidentModel& model, const Ops& ops, const EngineLimits& limits);

  // Bytes of KV cache that a request may come to need; refuses what submit() would refuse as usage.
  static uint64_t kv_bytes(const ModelDescription& model, const Request& request);

  // Refuses (usage) a prompt that is empty, too long or has ids outside the vocabulary, and
  // (does_not_fit) one that can never fit the KV limit. The sequence waits until there is room.
  SequenceId submit(Request request);
  void cancel(SequenceId id);
  bool idle() const { return sequences_.empty(); }

  // Tokens of all sequences that are not computed yet: what is left of their prompts, mostly.
  int64_t pending_tokens() const;

  // Computes one batch and returns what its sequences gained; a finished sequence is gone.
  std::vector<Progress> step();

 private:
  struct Sequence {
    SequenceId id;
    Request request;
    Sampler sampler;
    std::vector<TokenId> tokens;  // prompt and generated; the KV cache holds the first of them
    int64_t generated = 0;
    int64_t promised_pages = 0;
    bool admitted = false;
    int64_t last_step = 0;  // in which it was computed
    KvSequence kv;

    int64_t pending() const { return static_cast<int64_t>(tokens.size()) - kv.length(); }
  };

  void admit();
  std::vector<Sequence*> in_turn() const;
  Batch next_batch(std::vector<Sequence*>& members);
  Progress advance(Sequence& sequence, std::span<const float> logits) const;
  void retire(const std::vector<Progress>& progress);

  const ResidentModel& model_;
  const Ops& ops_;
  EngineLimits limits_;
  PagedKvCache cache_;
  int64_t promised_pages_ = 0;
  int32_t next_id_ = 0;
  int64_t steps_ = 0;
  std::vector<std::unique_ptr<Sequence>> sequences_;  // in order of arrival
};

}  // namespace klotski
