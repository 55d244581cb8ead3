#pragma once

// Bytes that the tasks of a group work in, by formula: the planner counts on them before a weight
// is read, the executor takes them.

#include <cstdint>

#include "model/unit_layout.h"
#include "schedule/policy.h"

namespace klotski {

// Bytes of the rows of a group of up to `most_rows`: the hidden rows, the rows that experts take
// and give, and the rows that experts on the CPU give.
uint64_t group_row_bytes(const ModelDescription& model, const Policy& policy, int64_t most_rows);

// Bytes of all else that tasks of a group of `rows` rows compute with.
uint64_t working_bytes(const ModelDescription& model, const UnitLayouts& layouts,
                       const Processor& processor, const Policy& policy, int64_t rows,
                       int64_t logit_rows);

// A count in pinned memory has a cache line of its own.
inline constexpr uint64_t kCountBytes = 64;

// Bytes that a device and the CPU exchange for experts of a group of `rows` rows, in the memory of
// each: the rows that experts take and give, up to where the count of computed experts lies.
uint64_t exchanged_expert_row_bytes(const ModelDescription& model, int64_t rows);
// exchanged_expert_row_bytes() and the count behind the rows.
uint64_t shared_row_bytes(const ModelDescription& model, int64_t rows);

// Floats of the widest inputs of attention, of one row.
int64_t widest_attention_input(const ModelDescription& model);
// Bytes that a device and the CPU exchange for attention of `rows` rows, in the memory of each.
uint64_t attention_row_bytes(const ModelDescription& model, int64_t rows);

// Bytes of a slice's part of one of an expert's matrices, in a device's memory.
uint64_t slice_part_bytes(const TensorView& part);
// Bytes of the largest slice of an expert that a device computes while the CPU computes the rest.
uint64_t slice_bytes(const UnitLayouts& layouts);

}  // namespace klotski
