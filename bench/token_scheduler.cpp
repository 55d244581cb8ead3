// The experts that a decoding pass needs, on recorded routing, with requests admitted in the order
// in which they came and by the token scheduler: the engine's own classes, nothing is computed.
//
//   klotski_token_scheduler [--learn TRACE]... [--network FILE] TRACE...
//
// Every sequence of the traces is a request: its first half is the prompt, its second half is
// decoded a token a pass. Requests come in one random order, the same for all. In "groups" all of a
// group end together; in "mixed" they decode between an eighth and all of their second half, and
// the next request joins when one ends. At last, the paper's own case: decoding tokens exchanged
// between batches before every pass, by the experts that they will choose, beside one load of each
// expert for all batches.

#include <fmt/format.h>

#include <chrono>
#include <cstring>
#include <exception>
#include <optional>
#include <random>

#include "experts/balanced_kmeans.h"
#include "experts/path_predictor.h"
#include "experts/token_predictor.h"
#include "experts/traced_sequences.h"
#include "schedule/token_scheduler.h"

namespace klotski {
namespace {

struct Request {
  const TracedSequence* traced = nullptr;
  RequestShares shares{};
  int64_t decoded_tokens = 0;

  size_t prompt_tokens() const { return traced->tokens.size() / 2; }
};

RoutingPath path_of(const TracedSequences& traced, const TracedSequence& sequence, size_t token) {
  RoutingPath path(traced.shape.experts());
  int64_t first = 0;
  for (size_t layer = 0; layer < traced.shape.layers.size(); ++layer) {
    for (const uint16_t e : traced.choices(sequence, token, layer)) path.add(first + e);
    first += traced.shape.layers[layer].experts;
  }
  return path;
}

// The shares of the tokens [first, end) as they were: what a perfect predictor would say.
RequestShares shares_of(const TracedSequences& traced, const TracedSequence& sequence, size_t first,
                        size_t end) {
  RequestShares shares;
  for (size_t layer = 0; layer < traced.shape.layers.size(); ++layer) {
    const size_t begin = shares.size();
    shares.resize(begin + static_cast<size_t>(traced.shape.layers[layer].experts));
    for (size_t token = first; token < end; ++token) {
      for (const uint16_t e : traced.choices(sequence, token, layer)) {
        shares[begin + e] += 1.0f / static_cast<float>(end - first);
      }
    }
  }
  return shares;
}

void learn(ExpertPredictor& predictor, const TracedSequences& traced) {
  for (const TracedSequence& sequence : traced.sequences) {
    for (size_t t = 0; t < sequence.tokens.size(); ++t) {
      predictor.begin_pass({{.sequence = 0, .position = 0, .token = sequence.tokens[t]}});
      for (size_t layer = 0; layer < traced.shape.layers.size(); ++layer) {
        std::vector<ExpertId> experts;
        for (const uint16_t e : traced.choices(sequence, t, layer)) experts.emplace_back(e);
        predictor.observe(traced.shape.layers[layer].layer, experts);
      }
    }
  }
}

// One way to run the requests.
struct Setting {
  bool scheduled = false;
  int64_t group = 0;
  int64_t window = 0;  // requests that wait at any time, as long as there are so many
};

// Runs all requests and returns the mean number of experts of a pass with a full group.
double experts_of_a_pass(const TracedSequences& traced, std::span<const Request> requests,
                         const Setting& setting) {
  struct Here {
    const Request* request;
    bool runs = false;
    int64_t overtaken = 0;
    int64_t decoded = 0;
  };
  std::vector<Here> here;
  size_t came = 0;
  double experts = 0.0;
  double passes = 0.0;
  while (true) {
    int64_t running = 0;
    for (const Here& one : here) running += one.runs;
    while (came < requests.size() && std::ssize(here) - running < setting.window) {
      here.push_back({&requests[came++]});
    }
    const int64_t room = setting.group - running;
    if (std::ssize(here) < setting.group) return experts / passes;
    std::vector<size_t> chosen;
    if (setting.scheduled && room > 0) {
      std::vector<ScheduledRequest> known;
      for (const Here& one : here) {
        known.push_back({&one.request->shares, one.runs, one.overtaken});
      }
      chosen = choose_requests(known, traced.shape, room);
    } else {
      for (size_t i = 0; i < here.size() && std::ssize(chosen) < room; ++i) {
        if (!here[i].runs) chosen.push_back(i);
      }
    }
    for (const size_t i : chosen) {
      here[i].runs = true;
      for (size_t older = 0; older < i; ++older) here[older].overtaken += !here[older].runs;
    }
    RoutingPath pass(traced.shape.experts());
    for (Here& one : here) {
      if (!one.runs) continue;
      const size_t token = one.request->prompt_tokens() + static_cast<size_t>(one.decoded++);
      pass.add(path_of(traced, *one.request->traced, token));
    }
    std::erase_if(here, [](const Here& one) { return one.decoded == one.request->decoded_tokens; });
    experts += static_cast<double>(pass.used());
    ++passes;
  }
}

struct Arguments {
  std::vector<std::filesystem::path> learn_from;
  std::vector<std::filesystem::path> judged;
  std::optional<std::filesystem::path> network;
};

class Comparison {
 public:
  explicit Comparison(const Arguments& arguments) : traced_(read_traces(arguments.judged)) {
    std::mt19937 random(1);
    for (const TracedSequence& sequence : traced_.sequences) {
      if (sequence.tokens.size() < 16) continue;
      requests_.push_back({.traced = &sequence});
    }
    for (size_t i = requests_.size(); i-- > 1;) {
      std::swap(requests_[i], requests_[random() % (i + 1)]);
    }
    fmt::print("{} requests, {} experts\n", requests_.size(), traced_.shape.experts());
    for (Request& request : requests_) {
      const auto most = static_cast<int64_t>(request.traced->tokens.size() / 2);
      mixed_lengths_.push_back(most / 8 + static_cast<int64_t>(random()) % (most - most / 8) + 1);
    }
    fmt::print("{:<8} {:<18} {:>7} {:>18} {:>18} {:>18}\n", "requests", "experts known by",
               "waiting", "groups of 2", "groups of 4", "groups of 8");
  }

  void judge(std::string_view name, const std::function<RequestShares(const Request&)>& shares) {
    const auto begin = std::chrono::steady_clock::now();
    for (Request& request : requests_) request.shares = shares(request);
    const std::chrono::duration<double, std::micro> taken =
        std::chrono::steady_clock::now() - begin;
    for (const bool mixed : {false, true}) {
      for (size_t i = 0; i < requests_.size(); ++i) {
        requests_[i].decoded_tokens =
            mixed ? mixed_lengths_[i]
                  : static_cast<int64_t>(requests_[i].traced->tokens.size() / 2);
      }
      for (const int64_t window : {32, 64}) {
        std::string line;
        for (const int64_t group : {2, 4, 8}) {
          const double in_order = experts_of_a_pass(traced_, requests_, {false, group, window});
          const double alike = experts_of_a_pass(traced_, requests_, {true, group, window});
          line += fmt::format(" {:>6.2f} {:>+5.1f}% ({:.2f})", alike,
                              100.0 * (alike / in_order - 1.0), in_order);
        }
        fmt::print("{:<8} {:<18} {:>7}{}\n", mixed ? "mixed" : "groups", name, window, line);
      }
    }
    fmt::print("{:<8} {:<18} {:.0f} us a request\n", "", name,
               taken.count() / static_cast<double>(requests_.size()));
  }

  void judge(std::string_view name, const ExpertPredictor& predictor) {
    judge(name, [&](const Request& request) {
      const size_t tokens = request.prompt_tokens();
      const size_t last = std::min(tokens, kPredictedTokens);
      return predictor.expected_shares(
          std::span(request.traced->tokens).subspan(tokens - last, last));
    });
  }

  // Experts of a pass of 32 sequences: of all, and summed over batches of 8.
  void exchange() const {
    constexpr size_t kSequences = 32;
    constexpr size_t kBatches = 4;
    double together = 0.0;
    double in_order = 0.0;
    double exchanged = 0.0;
    double passes = 0.0;
    for (size_t first = 0; first + kSequences <= requests_.size(); first += kSequences) {
      for (size_t decoded = 0; decoded < 8; ++decoded) {
        RoutingPath all(traced_.shape.experts());
        std::vector<RoutingPath> paths;
        for (size_t i = first; i < first + kSequences; ++i) {
          const Request& request = requests_[i];
          paths.push_back(path_of(traced_, *request.traced, request.prompt_tokens() + decoded));
          all.add(paths.back());
        }
        const PathClusters clusters = balanced_kmeans(paths, kBatches, 1);
        for (size_t batch = 0; batch < kBatches; ++batch) {
          RoutingPath as_they_are(traced_.shape.experts());
          RoutingPath alike(traced_.shape.experts());
          const size_t size = kSequences / kBatches;
          for (size_t i = batch * size; i < (batch + 1) * size; ++i) as_they_are.add(paths[i]);
          for (const size_t i : clusters.members(batch)) alike.add(paths[i]);
          in_order += static_cast<double>(as_they_are.used());
          exchanged += static_cast<double>(alike.used());
        }
        together += static_cast<double>(all.used());
        ++passes;
      }
    }
    if (passes == 0) return;
    fmt::print("{} sequences: {:.1f} experts together, {:.1f} in {} batches, {:.1f} exchanged\n",
               kSequences, together / passes, in_order / passes, kBatches, exchanged / passes);
  }

  const TracedSequences& traced() const { return traced_; }

 private:
  TracedSequences traced_;
  std::vector<Request> requests_;
  std::vector<int64_t> mixed_lengths_;
};

void compare(const Arguments& arguments) {
  Comparison comparison(arguments);
  const TracedSequences& traced = comparison.traced();
  TokenPredictor token(traced.shape);
  if (!arguments.learn_from.empty()) learn(token, read_traces(arguments.learn_from));
  if (!arguments.learn_from.empty()) comparison.judge("token", token);
  if (arguments.network) {
    PathNetwork network = PathNetwork::load(*arguments.network, traced.shape);
    comparison.judge("path", PathPredictor(network));
  }
  comparison.judge("prompt's gates", [&](const Request& request) {
    return shares_of(traced, *request.traced, 0, request.prompt_tokens());
  });
  comparison.judge("what is decoded", [&](const Request& request) {
    return shares_of(traced, *request.traced, request.prompt_tokens(),
                     request.traced->tokens.size());
  });
  comparison.exchange();
}

}  // namespace
}  // namespace klotski

int main(int count, char** values) {
  klotski::Arguments arguments;
  for (int i = 1; i < count; ++i) {
    const bool has_value = i + 1 < count;
    if (std::strcmp(values[i], "--learn") == 0 && has_value) {
      arguments.learn_from.emplace_back(values[++i]);
    } else if (std::strcmp(values[i], "--network") == 0 && has_value) {
      arguments.network = values[++i];
    } else {
      arguments.judged.emplace_back(values[i]);
    }
  }
  if (arguments.judged.empty()) {
    fmt::print(stderr, "expected routing traces (klotski trace) as arguments, found none\n");
    return 2;
  }
  try {
    klotski::compare(arguments);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
  return 0;
}
