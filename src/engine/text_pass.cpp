#include "engine/text_pass.h"

#include <algorithm>

#include "base/error.h"
#include "kv/transaction.h"

namespace klotski {

namespace {

// Texts that run together: as many as a group has micro-batches and the cache has room for, one in
// each.
class TextGroup {
 public:
  TextGroup(Pipeline& pipeline, std::span<const std::vector<TokenId>> texts, size_t first)
      : pipeline_(pipeline), texts_(texts), first_(first), sequences_(pipeline.cache()) {
    const auto most = static_cast<size_t>(pipeline.policy().group.micro_batches);
    while (first + size() < texts.size() && size() < most) {
      const auto tokens = static_cast<int64_t>(texts[first + size()].size());
      if (!sequences_.place(tokens, pipeline.policy().group.micro_batch_rows)) break;
    }
    if (size() == 0) {
      fail(ErrorKind::does_not_fit, "a text of {} tokens does not fit the KV cache; raise --ram",
           texts[first].size());
    }
  }
  size_t size() const { return sequences_.size(); }

  // Tells the pipeline that these texts will not be in any later pass.
  void end() {
    for (size_t i = 0; i < size(); ++i) pipeline_.end_sequence(sequences_[i]);
  }

  // The next piece of every text; false when all are through.
  bool pass(const TakeRouting& take) {
    KvTransaction step(pipeline_.cache());
    std::vector<MicroBatch> group;
    std::vector<RoutedPiece> pieces;
    int64_t rows = 0;
    for (size_t i = 0; i < size(); ++i) {
      const std::span<const TokenId> rest =
          std::span(texts_[first_ + i]).subspan(static_cast<size_t>(sequences_[i].length()));
      const auto tokens = std::min<int64_t>(static_cast<int64_t>(rest.size()),
                                            pipeline_.policy().group.micro_batch_rows);
      if (tokens == 0) continue;
      step.reserve(sequences_[i], tokens);
      pieces.push_back(
          {first_ + i, sequences_[i].length(), rest.first(static_cast<size_t>(tokens)), rows});
      MicroBatch& micro_batch = group.emplace_back();
      micro_batch.batch.append(sequences_[i].length(), pieces.back().tokens,
                               static_cast<int64_t>(texts_[first_ + i].size()), LogitsOf::none);
      micro_batch.sequences.push_back(&sequences_[i]);
      rows += tokens;
    }
    if (group.empty()) return false;
    pipeline_.forward(group, [](size_t, Rows) {});
    if (take) take(pieces, pipeline_.choices());
    step.commit();
    return true;
  }

 private:
  Pipeline& pipeline_;
  std::span<const std::vector<TokenId>> texts_;
  size_t first_;
  PlacedSequences sequences_;
};

}  // namespace

std::vector<std::vector<TokenId>> cut_into_sequences(std::span<const TokenId> tokens,
                                                     int64_t most_tokens) {
  std::vector<std::vector<TokenId>> sequences;
  while (!tokens.empty()) {
    const size_t length = std::min(tokens.size(), static_cast<size_t>(most_tokens));
    sequences.emplace_back(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(length));
    tokens = tokens.subspan(length);
  }
  return sequences;
}

void pass_texts(Pipeline& pipeline, std::span<const std::vector<TokenId>> texts,
                const TakeRouting& take) {
  for (size_t first = 0; first < texts.size();) {
    TextGroup group(pipeline, texts, first);
    while (group.pass(take)) {
    }
    group.end();
    first += group.size();
  }
}

}  // namespace klotski
