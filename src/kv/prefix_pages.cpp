#include "kv/prefix_pages.h"

#include <algorithm>

namespace klotski {

// FNV-1a over the tokens' bytes, from the hash of the pages before.
uint64_t PrefixPages::chained_hash(uint64_t hash_before, std::span<const TokenId> tokens) {
  constexpr uint64_t kOffset = 0xcbf29ce484222325;
  constexpr uint64_t kPrime = 0x100000001b3;
  uint64_t hash = hash_before ^ kOffset;
  for (const TokenId token : tokens) {
    for (int shift = 0; shift < 32; shift += 8) {
      hash = (hash ^ ((static_cast<uint32_t>(token) >> shift) & 0xff)) * kPrime;
    }
  }
  return hash;
}

uint64_t PrefixPages::hash_after(int32_t parent, std::span<const TokenId> tokens) const {
  return hash_(parent == kRoot ? 0 : nodes_[static_cast<size_t>(parent)].hash, tokens);
}

std::optional<int32_t> PrefixPages::find(int32_t parent, std::span<const TokenId> tokens) const {
  const auto [begin, end] = by_hash_.equal_range(hash_after(parent, tokens));
  for (auto found = begin; found != end; ++found) {
    const Node& node = nodes_[static_cast<size_t>(found->second)];
    if (node.parent == parent && std::equal(tokens.begin(), tokens.end(), node.tokens.begin())) {
      return found->second;
    }
  }
  return std::nullopt;
}

int32_t PrefixPages::add(int32_t parent, std::span<const TokenId> tokens, int32_t page) {
  Node added{.parent = parent, .page = page, .holders = 1, .hash = hash_after(parent, tokens)};
  std::copy_n(tokens.begin(), added.tokens.size(), added.tokens.begin());
  if (unused_.empty()) {
    unused_.push_back(static_cast<int32_t>(nodes_.size()));
    nodes_.emplace_back();
  }
  const int32_t node = unused_.back();
  unused_.pop_back();
  at(node) = added;
  by_hash_.emplace(added.hash, node);
  if (parent != kRoot) ++at(parent).children;
  ++held_;
  return node;
}

void PrefixPages::hold(int32_t node) {
  Node& held = at(node);
  if (held.holders++ > 0) return;
  ++held_;
  idle_leaves_.erase({held.last_use, node});
}

void PrefixPages::let_go(int32_t node) {
  Node& held = at(node);
  held.last_use = ++clock_;
  if (--held.holders > 0) return;
  --held_;
  offer(node);
}

// Lets a node be removed where it is a leaf that no sequence holds.
void PrefixPages::offer(int32_t node) {
  const Node& offered = at(node);
  if (offered.holders == 0 && offered.children == 0) idle_leaves_.emplace(offered.last_use, node);
}

int32_t PrefixPages::remove_least_recent() {
  const int32_t node = idle_leaves_.begin()->second;
  idle_leaves_.erase(idle_leaves_.begin());
  const Node removed = at(node);
  const auto [begin, end] = by_hash_.equal_range(removed.hash);
  by_hash_.erase(std::find_if(begin, end, [&](const auto& entry) { return entry.second == node; }));
  unused_.push_back(node);
  if (removed.parent != kRoot) {
    --at(removed.parent).children;
    offer(removed.parent);
  }
  return removed.page;
}

}  // namespace klotski
