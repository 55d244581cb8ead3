#include "engine/text_pass.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "engine/prompt.h"
#include "kv/transaction.h"

namespace klotski {

namespace {

constexpr int64_t kScoredRows = 64;  // rows of a micro-batch whose logits are in memory together

// -ln of the probability of a token.
double negative_log_probability(std::span<const float> logits, TokenId token) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0.0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - largest);
  return largest + std::log(sum) - static_cast<double>(logits[static_cast<size_t>(token)]);
}

// Receives the logits of a piece's tokens.
using TakeTextLogits = std::function<void(const RoutedPiece&, Rows logits)>;

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
    if (pipeline.description().encoder) {
      fail(ErrorKind::usage,
           "texts are read through by models without an encoder; this model has one");
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

  // The next piece of every text; false when all are through. Logits are computed where they are
  // taken.
  bool pass(const TakeRouting& take, const TakeTextLogits& take_logits) {
    const int64_t most =
        take_logits ? std::min(kScoredRows, micro_batch_rows()) : micro_batch_rows();
    KvTransaction step(pipeline_.cache());
    std::vector<MicroBatch> group;
    std::vector<RoutedPiece> pieces;
    int64_t rows = 0;
    for (size_t i = 0; i < size(); ++i) {
      const std::span<const TokenId> rest =
          std::span(texts_[first_ + i]).subspan(static_cast<size_t>(sequences_[i].length()));
      const int64_t tokens = std::min(std::ssize(rest), most);
      if (tokens == 0) continue;
      step.reserve(sequences_[i], tokens);
      pieces.push_back(
          {first_ + i, sequences_[i].length(), rest.first(static_cast<size_t>(tokens)), rows});
      MicroBatch& micro_batch = group.emplace_back();
      micro_batch.batch.append(sequences_[i].length(), pieces.back().tokens,
                               std::ssize(texts_[first_ + i]),
                               take_logits ? LogitsOf::every_token : LogitsOf::none);
      micro_batch.sequences.push_back(&sequences_[i]);
      rows += tokens;
    }
    if (group.empty()) return false;
    pipeline_.forward(group, [&](size_t micro_batch, Rows logits) {
      if (take_logits) take_logits(pieces[micro_batch], logits);
    });
    if (take) take(pieces, pipeline_.choices());
    step.commit();
    return true;
  }

 private:
  int64_t micro_batch_rows() const { return pipeline_.policy().group.micro_batch_rows; }

  Pipeline& pipeline_;
  std::span<const std::vector<TokenId>> texts_;
  size_t first_;
  PlacedSequences sequences_;
};

void pass_groups(Pipeline& pipeline, std::span<const std::vector<TokenId>> texts,
                 const TakeRouting& take, const TakeTextLogits& take_logits) {
  for (const auto& text : texts) check_tokens(pipeline.description(), text, "text");
  for (size_t first = 0; first < texts.size();) {
    TextGroup group(pipeline, texts, first);
    while (group.pass(take, take_logits)) {
    }
    group.end();
    first += group.size();
  }
}

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
  pass_groups(pipeline, texts, take, {});
}

double TextScore::perplexity() const {
  return std::exp(negative_log_likelihood / static_cast<double>(tokens));
}

TextScore score_texts(Pipeline& pipeline, std::span<const std::vector<TokenId>> texts,
                      const std::function<void(uint64_t, uint64_t)>& progress) {
  uint64_t total = 0;
  for (const auto& text : texts) total += text.size();
  uint64_t done = 0;
  // One sum a text, so that the result does not depend on which texts run together.
  std::vector<TextScore> scores(texts.size());
  pass_groups(
      pipeline, texts,
      [&](std::span<const RoutedPiece> pieces, const GroupChoices&) {
        for (const RoutedPiece& piece : pieces) done += piece.tokens.size();
        if (progress) progress(done, total);
      },
      [&](const RoutedPiece& piece, Rows logits) {
        const std::vector<TokenId>& text = texts[piece.text];
        TextScore& score = scores[piece.text];
        for (int64_t row = 0; row < logits.count; ++row) {
          const auto next = static_cast<size_t>(piece.first_position + row + 1);
          if (next == text.size()) continue;
          const std::span<const float> of_row(logits.row(row), static_cast<size_t>(logits.width));
          const double nats = negative_log_probability(of_row, text[next]);
          if (!std::isfinite(nats)) {
            fail(ErrorKind::bad_model,
                 "the logits of text {}, position {}: expected numbers, found an infinity or NaN; "
                 "the weights are broken",
                 piece.text, next - 1);
          }
          score.negative_log_likelihood += nats;
          ++score.tokens;
        }
      });
  TextScore all;
  for (const TextScore& score : scores) {
    all.tokens += score.tokens;
    all.negative_log_likelihood += score.negative_log_likelihood;
  }
  return all;
}

Workload score_workload(std::span<const std::vector<TokenId>> texts) {
  int64_t longest = 0;
  for (const auto& text : texts) longest = std::max(longest, std::ssize(text));
  return {.sequences = std::ssize(texts),
          .tokens_per_sequence = longest,
          .prompt_tokens = longest,
          .logit_rows = kScoredRows};
}

}  // namespace klotski
