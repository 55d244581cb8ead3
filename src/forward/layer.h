#pragma once

// The arithmetic of a model, step by step, as free functions. They read the description and the
// weights they are given; where keys, values and weights are kept is not their business. Rows,
// weights and an expert's lists of rows lie in the memory of the operations, tokens and row numbers
// in the program's.

#include <optional>
#include <span>
#include <vector>

#include "forward/batch.h"
#include "forward/buffer.h"
#include "forward/weights.h"
#include "kernels/ops.h"
#include "model/description.h"

namespace klotski {

// Model, processor and precision of the products. The router and the sums from layer to layer are
// float32 always.
struct Arithmetic {
  const ModelDescription& model;
  const Processor& ops;
  Precision precision;
  bool router_gaps = false;  // whether a Routing says how far its choices were from others
};

// Inputs of attention for a batch's rows, rotated to their positions: as many rows for each part of
// Attention::inputs().
struct AttentionRows {
  std::vector<Rows> parts;
};
// The rows of one sequence among a batch's.
AttentionRows rows_of(const AttentionRows& rows, const BatchSequence& sequence);

// AttentionRows with memory of their own.
class AttentionInputs {
 public:
  AttentionInputs(const Processor& ops, const Attention& attention, int64_t rows);
  AttentionRows rows();

 private:
  std::vector<Buffer> parts_;
};

// The experts each row goes to, best first.
struct Routing {
  int64_t top_k = 1;       // experts a row
  List<ExpertId> experts;  // [rows][top_k]
  List<float> weights;     // [rows][top_k]
  List<float> scales;      // [rows][top_k], factors of the experts' inputs; empty: none
  List<float> gaps;        // [rows], as in RouteArguments; empty where nobody asked
  // Choices, gaps and scales in the program's memory, once read_choices() was called.
  std::vector<ExpertId> chosen = {};
  std::vector<float> chosen_gaps = {};
  std::vector<float> chosen_scales = {};
  std::vector<float> chosen_weights = {};  // where gaps were asked for
  // Choices, gaps, scales and weights on their way to the program's memory.
  std::optional<Download<ExpertId>> coming = {};
  std::optional<Download<float>> coming_gaps = {};
  std::optional<Download<float>> coming_scales = {};
  std::optional<Download<float>> coming_weights = {};
};

// `positions`: one a token, of models that add them to embeddings.
void embed(const Arithmetic& with, Rows hidden, const WeightSet& model_weights,
           std::span<const TokenId> tokens, std::span<const int32_t> positions);

// Rotation of a batch's queries and keys, which is the same in every layer. Frequencies may depend
// on the length of a sequence, never on other sequences or on how a prompt was cut into pieces.
struct Rotation {
  int64_t pairs = 0;
  List<int32_t> positions;  // positions of rows
  List<float> frequencies;  // as in RopeArguments
  List<int32_t> tables;
  List<float> temperatures;  // factors of queries by row, where the model has them
};
Rotation rotation_of(const Arithmetic& with, const Batch& batch);

void pre_attention(const Arithmetic& with, const AttentionRows& out, ConstRows hidden,
                   const WeightSet& weights, LayerId layer, const Rotation& rotation);
// pre_attention() into rows of its own.
AttentionInputs pre_attention(const Arithmetic& with, ConstRows hidden, const WeightSet& weights,
                              LayerId layer, const Rotation& rotation);

// New rows of one sequence, at positions `past` and following, and the layer's data of the
// sequence.
struct AttendingSequence {
  Rows output;  // [rows][Attention::output_width()]
  AttentionRows inputs;
  LayerCache cache;
  int64_t past = 0;
  int64_t encoded = 0;  // as in BatchSequence
};

// Puts the inputs that the cache keeps into it, for every sequence.
void keep(const Arithmetic& with, std::span<const AttendingSequence> sequences, LayerId layer);

// Attention over the cache, which holds the new rows as well, for every sequence. Reads only the
// inputs that the cache does not keep, and only the weights that attention needs besides
// projections (sinks).
void attention(const Arithmetic& with, std::span<const AttendingSequence> sequences,
               const WeightSet& weights, LayerId layer);

// hidden += output projection of attention's result.
void post_attention(const Arithmetic& with, Rows hidden, ConstRows attended,
                    const WeightSet& weights, LayerId layer);
// out = output projection of attention's result.
void project_attended(const Arithmetic& with, Rows out, ConstRows attended,
                      const WeightSet& weights, LayerId layer);

// Keys and values of cross attention in a decoder's layer, from the rows that the encoder's last
// layer gave. Puts them into the caches of the sequences, whose inputs and outputs are not read.
void keep_encoded(const Arithmetic& with, ConstRows hidden,
                  std::span<const AttendingSequence> sequences, const WeightSet& weights,
                  LayerId layer);
// hidden += attention over the encoder's output, where the layer has it: the kept keys and values.
// The inputs and outputs of the sequences say how many rows each has, and are not read. Called
// after post_attention().
void cross_attention(const Arithmetic& with, Rows hidden,
                     std::span<const AttendingSequence> sequences, const WeightSet& weights,
                     LayerId layer);

// normed = norm(hidden) where the feed-forward part of the layer reads the rows that attention
// reads: called with the hidden rows before post_attention(), and attention's weights.
void norm_beside_attention(const Arithmetic& with, Rows normed, ConstRows hidden,
                           const WeightSet& weights, LayerId layer);

// normed = norm(hidden), unless norm_beside_attention() made it, and where its rows go: for the
// program in two parts. `given`: choices that count in place of the router's, [rows][top_k]; empty:
// the router chooses.
Routing route(const Arithmetic& with, Rows normed, ConstRows hidden, const WeightSet& weights,
              LayerId layer, std::span<const ExpertId> given = {});
// Takes the choices to the program's memory, once all operations of route() were waited for.
void read_choices(Routing& routing);

// An expert and the rows that chose it.
struct ChosenExpert {
  ExpertWeights weights;
  std::span<const int32_t> in_rows;
  std::span<const int32_t> out_rows;      // rows of the results
  std::span<const float> in_scales = {};  // factors of in_rows, or none
};

// Bytes of the weights of experts that run in one call, at most. With much less, waking threads and
// launching kernels would take a visible share of the time. With more, the first expert's memory
// would be given back later than necessary, since all experts of a call end together.
inline constexpr uint64_t kJoinedExpertBytes = uint64_t{64} << 20;

// out[out_rows] = expert(in[in_rows]) for every expert; no two share an output.
void run_experts(const Arithmetic& with, Rows out, ConstRows in,
                 std::span<const ChosenExpert> experts, LayerId layer);

// hidden += the shared expert of the normed rows, or of a norm of its own, if the layer has one.
// Called before the routed experts' results are added.
void add_shared_expert(const Arithmetic& with, Rows hidden, ConstRows normed,
                       const WeightSet& weights, LayerId layer);

// Logits of the given rows.
void logits(const Arithmetic& with, Rows out, ConstRows hidden, const WeightSet& model_weights,
            std::span<const int32_t> rows);

}  // namespace klotski
