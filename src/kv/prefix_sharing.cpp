// Pages of equal texts: how a sequence finds those of others and makes its own known.

#include <iterator>
#include <optional>

#include "kv/paged_cache.h"

namespace klotski {

namespace {

std::span<const TokenId> tokens_of_page(std::span<const TokenId> tokens, size_t page) {
  return tokens.subspan(page * static_cast<size_t>(kKvPageTokens),
                        static_cast<size_t>(kKvPageTokens));
}

}  // namespace

// Lets a new sequence begin with the pages that are known of its tokens. At least one token stays
// to be computed, since the model's answer to the last one is wanted.
void PagedKvCache::share_prefix(KvSequence& sequence, std::span<const TokenId> tokens) {
  if (!can_share_prefixes() || tokens.empty()) return;
  const auto most = static_cast<size_t>((std::ssize(tokens) - 1) / kPageTokens);
  int32_t parent = PrefixPages::kRoot;
  for (size_t page = 0; page < most; ++page) {
    const std::optional<int32_t> node = prefixes_.find(parent, tokens_of_page(tokens, page));
    if (!node) break;
    prefixes_.hold(*node);
    sequence.shared_.push_back(*node);
    sequence.pages_.push_back(prefixes_.page(*node));
    parent = *node;
  }
  sequence.length_ = std::ssize(sequence.shared_) * kPageTokens;
}

// The last page first: it is the first to be removed.
void PagedKvCache::let_go_of_prefix(KvSequence& sequence) {
  for (size_t i = sequence.shared_.size(); i-- > 0;) prefixes_.let_go(sequence.shared_[i]);
  sequence.shared_.clear();
  sequence.pages_.clear();
  sequence.length_ = 0;
}

void PagedKvCache::publish(KvSequence& sequence, std::span<const TokenId> tokens) {
  if (!can_share_prefixes() || sequence.spilled_) return;
  const auto full = static_cast<size_t>(sequence.length_ / kPageTokens);
  for (size_t page = sequence.shared_.size(); page < full; ++page) {
    const int32_t parent = page == 0 ? PrefixPages::kRoot : sequence.shared_.back();
    const std::span<const TokenId> of_page = tokens_of_page(tokens, page);
    int32_t& place = sequence.pages_[page];
    std::optional<int32_t> node = prefixes_.find(parent, of_page);
    if (node) {
      prefixes_.hold(*node);
      memory_.give_back(place);
      place = prefixes_.page(*node);
    } else {
      node = prefixes_.add(parent, of_page, place);
    }
    sequence.shared_.push_back(*node);
    --sequence.booked_;
    --booked_pages_;
  }
}

}  // namespace klotski
