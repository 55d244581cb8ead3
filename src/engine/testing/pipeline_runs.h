#pragma once

// Texts run through a pipeline and through the plain loop that it must equal.

#include <cstdint>
#include <random>
#include <vector>

#include "engine/testing/models.h"

namespace klotski {

// Sequences with prompts and fixed continuations, so that logits are compared, not choices.
struct Texts {
  std::vector<std::vector<TokenId>> tokens;
  std::vector<int64_t> prompt;  // tokens computed in the first pass

  int64_t longest() const;
  Workload workload() const;
};

// Prompts of up to most_prompt tokens, each continued by up to three.
Texts random_texts(std::mt19937_64& random, size_t count, int64_t vocabulary,
                   int64_t most_prompt = 20);

using Logits = std::vector<std::vector<float>>;  // logits of a text's passes, one after the other

// Logits of the texts run by the resident model: first the prompts, then a token each.
std::vector<Logits> run_resident(const TestModel& test, const Texts& texts,
                                 Precision precision = RunLimits().precision,
                                 const Processor& ops = reference_processor());

// Logits of the texts run by a pipeline, as many texts at a time as it has room for, in a random
// order. Where a pass throws the pipeline is left as the caller of Pipeline::forward must leave it.
// `spilled` counts the texts that did not live in memory.
std::vector<Logits> run_pipeline(Pipeline& pipeline, const Texts& texts, std::mt19937_64& random,
                                 int64_t* spilled = nullptr);

}  // namespace klotski
