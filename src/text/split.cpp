#include "text/split.h"

#include "text/utf8.h"

namespace klotski {

namespace {

struct Part {
  Span span;
  bool match = false;
};

std::vector<Part> find_parts(std::string_view text, const MatchFinder& find, bool invert) {
  std::vector<Part> parts;
  size_t done = 0;
  find(text, [&](Span match) {
    if (match.begin > done) parts.push_back({{done, match.begin}, invert});
    parts.push_back({match, !invert});
    done = match.end;
  });
  if (done < text.size()) parts.push_back({{done, text.size()}, invert});
  return parts;
}

// Joins a part to the part before it (or, going backwards, after it) where the behaviour says so.
void join_forwards(std::vector<Part>& parts, SplitBehavior behavior) {
  bool previous_match = false;
  size_t kept = 0;
  for (const Part& part : parts) {
    const bool joins = behavior == SplitBehavior::contiguous ? part.match == previous_match
                                                             : part.match && !previous_match;
    previous_match = part.match;
    if (joins && kept > 0) {
      parts[kept - 1].span.end = part.span.end;
    } else {
      parts[kept++] = part;
    }
  }
  parts.resize(kept);
}

void join_backwards(std::vector<Part>& parts) {
  bool next_match = false;
  size_t kept = parts.size();
  for (size_t i = parts.size(); i-- > 0;) {
    const Part part = parts[i];
    if (part.match && !next_match && kept < parts.size()) {
      parts[kept].span.begin = part.span.begin;
    } else {
      parts[--kept] = part;
    }
    next_match = part.match;
  }
  parts.erase(parts.begin(), parts.begin() + static_cast<std::ptrdiff_t>(kept));
}

}  // namespace

SplitBehavior parse_behavior(const JsonFields& fields, std::string_view fallback) {
  const std::string name = fields.string_or("behavior", fallback);
  if (name == "Removed") return SplitBehavior::removed;
  if (name == "Isolated") return SplitBehavior::isolated;
  if (name == "MergedWithPrevious") return SplitBehavior::merged_with_previous;
  if (name == "MergedWithNext") return SplitBehavior::merged_with_next;
  if (name == "Contiguous") return SplitBehavior::contiguous;
  fields.refuse("behavior", "Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous");
}

void split_pieces(Pieces& pieces, const MatchFinder& find, SplitBehavior behavior, bool invert) {
  std::vector<Span> spans;
  spans.reserve(pieces.spans.size());
  for (const Span& span : pieces.spans) {
    const auto text = std::string_view(pieces.text).substr(span.begin, span.end - span.begin);
    std::vector<Part> parts = find_parts(text, find, invert);
    if (behavior == SplitBehavior::merged_with_next) {
      join_backwards(parts);
    } else if (behavior == SplitBehavior::merged_with_previous ||
               behavior == SplitBehavior::contiguous) {
      join_forwards(parts, behavior);
    }
    for (const Part& part : parts) {
      const bool dropped = behavior == SplitBehavior::removed && part.match;
      if (dropped || part.span.begin == part.span.end) continue;
      spans.push_back({span.begin + part.span.begin, span.begin + part.span.end});
    }
  }
  pieces.spans = std::move(spans);
}

MatchFinder characters_where(std::function<bool(char32_t)> predicate) {
  return [predicate = std::move(predicate)](std::string_view text,
                                            const std::function<void(Span)>& visit) {
    for (size_t at = 0; at < text.size();) {
      const Utf8Char next = decode_utf8(text, at);
      if (predicate(next.code)) visit({at, at + next.bytes});
      at += next.bytes;
    }
  };
}

}  // namespace klotski
