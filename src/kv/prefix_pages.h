#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "kv/sequence.h"

namespace klotski {

// Full pages that sequences with equal first tokens share. A page is a node of a tree: its parent
// holds the positions before it, so that a path from the root is a prefix of a text. Nodes are
// found by a chained hash of the tokens, and then compared token by token. A page stays after the
// last sequence that holds it, until it is removed: the least recently used leaf first.
class PrefixPages {
 public:
  using Hash = uint64_t (*)(uint64_t hash_before, std::span<const TokenId> tokens);
  static constexpr int32_t kRoot = -1;  // the parent of a text's first page

  static uint64_t chained_hash(uint64_t hash_before, std::span<const TokenId> tokens);
  // `hash`: tests give one that collides.
  explicit PrefixPages(Hash hash = &chained_hash) : hash_(hash) {}

  // The node of the page with these kKvPageTokens tokens after `parent`.
  std::optional<int32_t> find(int32_t parent, std::span<const TokenId> tokens) const;
  // Adds the page with the place `page` in memory after `parent`, which the caller holds. The
  // caller holds the new node, and find() has not found one with these tokens.
  int32_t add(int32_t parent, std::span<const TokenId> tokens, int32_t page);

  // A sequence holds a node, and all before it, while it uses their pages.
  void hold(int32_t node);
  void let_go(int32_t node);

  // The place in memory of a node's page.
  int32_t page(int32_t node) const { return nodes_[static_cast<size_t>(node)].page; }
  int64_t held_pages() const { return held_; }                         // pages that sequences hold
  int64_t idle_pages() const { return std::ssize(by_hash_) - held_; }  // pages that none holds

  // Removes the least recently used leaf that no sequence holds and returns the place of its page.
  // There is one where idle_pages() is above 0.
  int32_t remove_least_recent();

 private:
  struct Node {
    int32_t parent = kRoot;
    int32_t page = 0;
    int64_t holders = 0;   // sequences
    int64_t children = 0;  // nodes
    int64_t last_use = 0;  // by clock_
    uint64_t hash = 0;
    std::array<TokenId, kKvPageTokens> tokens{};
  };

  Node& at(int32_t node) { return nodes_[static_cast<size_t>(node)]; }
  uint64_t hash_after(int32_t parent, std::span<const TokenId> tokens) const;
  void offer(int32_t node);

  Hash hash_;
  std::vector<Node> nodes_;
  std::vector<int32_t> unused_;  // numbers of nodes that were removed
  std::unordered_multimap<uint64_t, int32_t> by_hash_;
  std::set<std::pair<int64_t, int32_t>> idle_leaves_;  // last use, node
  int64_t held_ = 0;
  int64_t clock_ = 0;  // counts uses
};

}  // namespace klotski
