#include <climits>

#include "base/error.h"
#include "kernels/cuda/context_cuda.h"
#include "kernels/cuda/vectors_cuda.h"
#include "kernels/cuda/warp_cuda.h"

namespace klotski::cuda {

namespace {

constexpr int64_t kMostExperts = 1024;
constexpr unsigned kTokens = 4;  // tokens of a block, a warp each

struct Routing {
  const float* logits;
  const float* bias;  // may be null
  int64_t tokens;
  int experts;
  RouterRule rule;
  ExpertId* chosen;
  float* weights;
  float* gaps;  // may be null
};

__device__ __forceinline__ float infinity() { return __int_as_float(0x7F800000); }

// A rank in the order of values, largest first, ties to the lower index, a NaN last.
struct Ranked {
  float key;
  int index;

  __device__ bool before(const Ranked& other) const {
    return key > other.key || (key == other.key && index < other.index);
  }
};

__device__ __forceinline__ Ranked ranked_at(const float* values, int index) {
  const float value = values[index];
  return {isnan(value) ? -infinity() : value, index};
}

__device__ __forceinline__ Ranked before_all() { return {infinity(), -1}; }

// The first of `count` values by rank that comes after another one. There must be one.
__device__ Ranked next_ranked(const float* values, int count, const Ranked& last) {
  Ranked best = {-infinity(), INT_MAX};
  for (int i = static_cast<int>(threadIdx.x % kWarp); i < count; i += kWarp) {
    const Ranked one = ranked_at(values, i);
    if (last.before(one) && one.before(best)) best = one;
  }
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    const Ranked other = {__shfl_xor_sync(kWholeWarp, best.key, distance),
                         __shfl_xor_sync(kWholeWarp, best.index, distance)};
    if (other.before(best)) best = other;
  }
  return best;
}

// scores = softmax or sigmoid of the logits
__device__ void score(float* scores, const float* logits, int count, ScoreFunction function) {
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  if (function == ScoreFunction::sigmoid) {
    for (int i = lane; i < count; i += kWarp) scores[i] = 1.0f / (1.0f + expf(-logits[i]));
    return;
  }
  float largest = -infinity();
  for (int i = lane; i < count; i += kWarp) largest = fmaxf(largest, logits[i]);
  largest = warp_max(largest);
  float sum = 0.0f;
  for (int i = lane; i < count; i += kWarp) sum += scores[i] = expf(logits[i] - largest);
  sum = warp_sum(sum);
  for (int i = lane; i < count; i += kWarp) scores[i] /= sum;
}

// The weight that the sparse mixer gives an expert, and by how much a logit would have to change to
// enter or leave the softmax of that weight.
struct Mixed {
  float weight;
  float gap;
};

// Mixes the chosen expert; earlier choices come before it in the order of `choice`.
__device__ Mixed mix(const float* logits, const float* choice, int experts, const Ranked& chosen,
                     float jitter) {
  const float best = logits[chosen.index];
  float sum = 0.0f;
  float gap = infinity();
  for (int i = static_cast<int>(threadIdx.x % kWarp); i < experts; i += kWarp) {
    if (ranked_at(choice, i).before(chosen)) continue;
    const float size = fmaxf(fabsf(logits[i]), best);
    const float distance = (best - logits[i]) / size;
    if (i != chosen.index) gap = fminf(gap, fabsf(distance - 2.0f * jitter) * size);
    if (distance > 2.0f * jitter) continue;
    sum += expf(logits[i] - best);
  }
  return {1.0f / warp_sum(sum), -warp_max(-gap)};
}

// The score of a group: its best expert's, or the sum of its best two.
__device__ float group_score(const float* members, int count, bool two) {
  Ranked best = ranked_at(members, 0);
  Ranked second = {-infinity(), INT_MAX};
  for (int i = 1; i < count; ++i) {
    const Ranked one = ranked_at(members, i);
    if (one.before(best)) {
      second = best;
      best = one;
    } else if (one.before(second)) {
      second = one;
    }
  }
  return two && count > 1 ? members[best.index] + members[second.index] : members[best.index];
}

// Makes experts outside the best groups impossible to choose. Returns by how much the worst kept
// group leads the best group that is not kept.
__device__ float keep_best_groups(float* choice, float* groups, int experts,
                                  const RouterRule& rule) {
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  const int size = experts / rule.groups;
  for (int group = lane; group < rule.groups; group += kWarp) {
    groups[group] =
        group_score(choice + group * size, size, rule.group_score == GroupScore::best_two);
  }
  __syncwarp();
  Ranked last = before_all();
  for (int kept = 0; kept < rule.groups_kept; ++kept) last = next_ranked(groups, rule.groups, last);
  for (int expert = lane; expert < experts; expert += kWarp) {
    if (last.before(ranked_at(groups, expert / size))) choice[expert] = -infinity();
  }
  __syncwarp();
  if (rule.groups_kept >= rule.groups) return infinity();
  return groups[last.index] - groups[next_ranked(groups, rule.groups, last).index];
}

// A warp a token; its numbers lie in shared memory.
__global__ void choose(Routing task) {
  extern __shared__ float shared[];
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  const int64_t token = int64_t{blockIdx.x} * kTokens + threadIdx.x / kWarp;
  if (token >= task.tokens) return;
  const int experts = task.experts;
  const RouterRule& rule = task.rule;
  float* scores = shared + threadIdx.x / kWarp * (2 * experts + rule.groups);
  float* choice = scores + experts;

  const float* logits = task.logits + token * experts;
  score(scores, logits, experts, rule.score);
  for (int i = lane; i < experts; i += kWarp) {
    choice[i] = task.bias ? scores[i] + task.bias[i] : scores[i];
  }
  __syncwarp();
  float gap = infinity();
  if (rule.groups > 1) gap = keep_best_groups(choice, choice + experts, experts, rule);

  ExpertId* chosen = task.chosen + token * rule.top_k;
  float* weights = task.weights + token * rule.top_k;
  Ranked last = before_all();
  float sum = 0.0f;
  for (int slot = 0; slot < rule.top_k; ++slot) {
    last = next_ranked(choice, experts, last);
    float weight = scores[last.index];
    if (rule.score == ScoreFunction::sparse_mixer) {
      const Mixed mixed = mix(logits, choice, experts, last, rule.jitter);
      gap = fminf(gap, mixed.gap * weight);
      weight = mixed.weight;
    }
    sum += weight;
    if (lane == 0) {
      chosen[slot].value = last.index;
      weights[slot] = weight;
    }
  }
  __syncwarp();
  sum = fmaxf(sum, rule.least_sum);
  for (int slot = lane; slot < rule.top_k; slot += kWarp) {
    weights[slot] = (rule.renormalise ? weights[slot] / sum : weights[slot]) * rule.scale;
  }
  if (!task.gaps) return;
  if (rule.top_k < experts) {
    const float lead = choice[last.index] - choice[next_ranked(choice, experts, last).index];
    if (lead < gap) gap = lead;
  }
  if (lane == 0) task.gaps[token] = gap;
}

}  // namespace

void CudaProcessor::route(const RouteArguments& arguments) const {
  const ConstRows& logits = arguments.logits;
  if (logits.count == 0) return;
  if (logits.width > kMostExperts) {
    fail(ErrorKind::bad_model, "a layer has {} experts, and a device chooses among {} at most",
         logits.width, kMostExperts);
  }
  const auto experts = static_cast<int>(logits.width);
  const size_t shared_bytes =
      kTokens * sizeof(float) * static_cast<size_t>(2 * experts + arguments.rule.groups);
  choose<<<blocks_of(logits.count, kTokens), kTokens * kWarp, shared_bytes, context().stream>>>(
      {logits.data, arguments.selection_bias.empty() ? nullptr : arguments.selection_bias.data(),
       logits.count, experts, arguments.rule, arguments.experts.data(), arguments.weights.data(),
       arguments.gaps.empty() ? nullptr : arguments.gaps.data()});
  check_launch("choose");
}

}  // namespace klotski::cuda
