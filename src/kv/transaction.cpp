#include "kv/transaction.h"

#include "base/error.h"
#include "base/keep_for_ever.h"

namespace klotski {

KvTransaction::~KvTransaction() {
  for (const Member& member : members_) cache_.undo(*member.sequence);
}

void KvTransaction::reserve(KvSequence& sequence, int64_t tokens) {
  members_.push_back({&sequence, tokens});  // first: undoing nothing changes nothing
  if (!cache_.reserve(sequence, tokens)) {
    fail(ErrorKind::internal, "a placed sequence found no KV page for {} more tokens", tokens);
  }
}

void KvTransaction::keep(const KvSequence& sequence, int64_t tokens) {
  for (Member& member : members_) {
    if (member.sequence == &sequence) member.tokens = tokens;
  }
}

void KvTransaction::commit() {
  for (const Member& member : members_) cache_.commit(*member.sequence, member.tokens);
  members_.clear();
}

PlacedSequences::~PlacedSequences() {
  for (KvSequence& sequence : sequences_) cache_.release(sequence);
  if (cache_.abandoned()) keep_for_ever(std::move(sequences_));
}

bool PlacedSequences::place(int64_t total_tokens, int64_t step_tokens) {
  KvSequence& sequence = sequences_.emplace_back();
  if (cache_.place(sequence, total_tokens, step_tokens)) return true;
  sequences_.pop_back();
  return false;
}

}  // namespace klotski
