#include "planner/pass_simulator.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kv/paged_cache.h"
#include "schedule/preload.h"

namespace klotski {

namespace {

std::chrono::nanoseconds nanoseconds(double seconds) {
  return std::chrono::nanoseconds(static_cast<int64_t>(seconds * 1e9));
}

// Largest share of a bus's time that keys and values take from weights: copies that are waited for
// take turns.
constexpr double kMostOfBus = 0.5;

constexpr int64_t kNeverLoaded = -1;

// Products of cross attention as a share of those of a layer's own attention: two of four matrices
// for the encoder's input (keys and values), the other two for the decoder's rows.
constexpr double kCrossProducts = 0.5;

// A rate of zero was not measured, since weights come from no disk: they take no time.
double seconds_at(double bytes_per_second, double bytes) {
  return bytes_per_second > 0 ? bytes / bytes_per_second : 0.0;
}

}  // namespace

PassSimulator::PassSimulator(const PredictionInputs& with, const Policy& policy, int64_t keep_spans)
    : with_(with),
      policy_(policy),
      schedule_(make_schedule(policy.strategy)),
      predictor_(std::make_unique<PopularityPredictor>(with.model, with.shares.all())),
      sources_{.model = with.model,
               .rule = policy.cache,
               .predictor = *predictor_,
               .facts = with.facts,
               .rows = [this](ExpertId expert) { return rows_of(expert, kWholeGroup); }},
      residency_(with.model, policy),
      kv_page_bytes_(PagedKvCache::spilled_page_bytes(with.model, kv_type(policy.precision))),
      state_bytes_(SequenceStates::spilled_version_bytes(with.model)),
      timeline_(keep_spans),
      simulation_([this](const Task& task) { return cost(task); },
                  [this](LayerId layer, int32_t micro_batch) {
                    if (micro_batch == 0) choose(layer);
                    std::vector<ExpertId> experts;
                    const std::vector<double>& rows = chosen_[static_cast<size_t>(micro_batch)];
                    for (size_t e = 0; e < rows.size(); ++e) {
                      if (rows[e] > 0) experts.emplace_back(static_cast<int64_t>(e));
                    }
                    return experts;
                  },
                  timeline_),
      pace_(with.model, policy, with.facts),
      loads_(with.model) {
  if (!policy.layout.host()) return;
  // A device's weights are brought before the first pass.
  FragmentBuilder build(policy_, residency_, sources_.context({}));
  for_each_preloaded(with.model, policy_, build, [&] { build.take(); });
}

TimelineTotals PassSimulator::play(const PassShape& shape) {
  shape_ = shape;
  simulation_.begin_pass();
  residency_.lend_slots(policy_.layout.slots_lent_to(
      std::llround(shape.rows() * static_cast<double>(shape.micro_batches))));
  const TimelineTotals before = timeline_.totals();
  const std::chrono::nanoseconds began = simulation_.pass_end();
  FragmentBuilder build(policy_, residency_, context());
  run_pass(*schedule_, build, simulation_);
  for (int32_t k = 0; k < build.micro_batches(); ++k) {
    if (shape.logit_rows > 0) build.logits(k);
  }
  simulation_.submit(build.take());
  ++passes_;
  TimelineTotals pass = timeline_.totals();
  pass -= before;
  pass.elapsed = simulation_.pass_end() - began;
  pace_.pass_over(timeline_.totals(), build.context().group_rows());
  const auto busy_share = [&](Lane lane) {
    return std::min(1.0, pass.percent(pass.lane(lane).busy) / 100.0);
  };
  const double kv_bytes = std::exchange(kv_bytes_on_bus_, 0.0);
  const double on_bus =
      kv_bytes > 0 ? with_.profile.machine.link().weights.at(kv_bytes) * beside_cpu() : 0.0;
  const double elapsed = in_seconds(pass.elapsed);
  kv_share_ = elapsed > 0 ? std::min(kMostOfBus, on_bus / elapsed) : 0.0;
  computing_share_ = busy_share(Lane::kCompute);
  reading_share_ = busy_share(Lane::kDiskRead);
  copying_share_ = busy_share(Lane::kToDevice);
  cpu_share_ = busy_share(Lane::kCpu);
  return pass;
}

// The pass's micro-batches. Keys and values that find no room in memory are taken to be all of the
// first few.
std::vector<MicroBatchShape> PassSimulator::micro_batches() const {
  std::vector<MicroBatchShape> group(
      static_cast<size_t>(shape_.micro_batches),
      {.rows = std::llround(std::ceil(shape_.rows())), .decodes = shape_.prompt_rows <= 0});
  const double spilled = policy_.layout.spilled_share() * static_cast<double>(group.size());
  for (size_t k = 0; static_cast<double>(k) < spilled; ++k) group[k].spilled = true;
  return group;
}

// Pages that a task moves between the compute tier and the memory it spills to: all pages that the
// micro-batch's sequences see, or those that its rows have changed.
double PassSimulator::kv_pages(const Task& task) const {
  constexpr auto kTokens = static_cast<double>(PagedKvCache::kPageTokens);
  return task.work == Work::load_kv
             ? shape_.decoding_rows *
                   (std::ceil(shape_.positions / kTokens) + std::ceil(shape_.encoded / kTokens))
             : shape_.decoding_rows + std::ceil(shape_.prompt_rows / kTokens);
}

// Seconds to move keys and values. Over a link they come and go as rows do, those of a micro-batch
// in one copy. A file is taken to be written as fast as it is read.
double PassSimulator::kv_seconds(const Task& task) {
  const auto layer = static_cast<size_t>(task.layer.value);
  const double sequences = shape_.decoding_rows + (shape_.prompt_rows > 0 ? 1.0 : 0.0);
  const double bytes = kv_pages(task) * static_cast<double>(kv_page_bytes_[layer]) +
                       sequences * static_cast<double>(state_bytes_[layer]);
  if (!policy_.layout.host()) return seconds_at(disk_bytes_per_second(), bytes);
  if (bytes <= 0) return 0.0;
  if (task.work != Work::load_kv) return with_.profile.machine.link().rows_down.at(bytes);
  kv_bytes_on_bus_ += bytes;
  return up_seconds(bytes) * beside_cpu();
}

ScheduleContext PassSimulator::context() {
  ScheduleContext context = sources_.context(micro_batches());
  context.encodes = shape_.encodes;
  context.loads_a_layer = pace_.pace().loads_a_layer();
  context.coming = [this] { return coming(); };
  return context;
}

// Probabilities of the experts of coming layers, made of their popularity, the only thing that a
// simulation knows of them. Tells the caches of them.
std::vector<LayerProbabilities> PassSimulator::coming() {
  const double rows = shape_.rows() * static_cast<double>(shape_.micro_batches);
  const int64_t layers = with_.model.layer_count();
  std::vector<LayerProbabilities> coming;
  for (int64_t ahead = 1; ahead <= std::min(kGuessedLayers, layers - 1); ++ahead) {
    const LayerId layer((layer_.value + ahead) % layers);
    const FeedForward& part = with_.model.layer(layer).feed_forward;
    if (!part.routed) continue;
    LayerProbabilities expected{layer, {}};
    for (const double share : with_.shares.of(layer)) {
      const double of_row = std::min(1.0, share * static_cast<double>(part.router.top_k));
      expected.probability.push_back(1.0 - std::pow(1.0 - of_row, rows));
    }
    if (layer > layer_) residency_.expect(expected);
    coming.push_back(std::move(expected));
  }
  return coming;
}

void PassSimulator::choose(LayerId layer) {
  layer_ = layer;
  chosen_.clear();
  const FeedForward& part = with_.model.layer(layer).feed_forward;
  for (int64_t k = 0; k < shape_.micro_batches; ++k) {
    chosen_.push_back(part.routed
                          ? with_.shares.rows(layer, k, passes_, shape_.rows(), part.router.top_k)
                          : std::vector<double>{shape_.rows()});
  }
}

double PassSimulator::rows_of(ExpertId expert, int32_t micro_batch) const {
  double rows = 0.0;
  for (size_t k = 0; k < chosen_.size(); ++k) {
    if (micro_batch != kWholeGroup && static_cast<size_t>(micro_batch) != k) continue;
    rows += chosen_[k][static_cast<size_t>(expert.value)];
  }
  return rows;
}

double PassSimulator::rows_of(const Task& task) const {
  return rows_of(task.unit.expert, task.micro_batch);
}

// The device's share of an expert that both compute.
double PassSimulator::slice_of(const Task& task) const {
  return static_cast<double>(task.sliced) /
         static_cast<double>(with_.model.layer(task.layer).feed_forward.width);
}

// A unit that is used a second time is arranged first: it is read and written once.
double PassSimulator::expert_seconds(const Task& task) {
  const LayerProfile& layer = with_.profile.model.of_layer(task.layer.value);
  const double rows = rows_of(task);
  if (policy_.layout.host()) return layer.expert.at(rows);
  int64_t& known = uses_of({Place::slot, task.slot, task.unit.kind});
  const int64_t uses = known = std::max<int64_t>(known, 0) + 1;
  if (uses == 1) return layer.expert.at(rows);
  const double bytes = static_cast<double>(with_.facts(task.unit).read_bytes);
  const double arranging =
      uses == 2 ? 2.0 * bytes / with_.profile.machine.cpu().memory_bytes_per_second : 0.0;
  return arranging + layer.expert_arranged.at(rows);
}

int64_t& PassSimulator::uses_of(const Resource& slot) {
  const size_t kind = slot.kind_index();
  if (kind >= uses_.size()) uses_.resize(kind + 1);
  const auto number = static_cast<size_t>(slot.number);
  if (number >= uses_[kind].size()) uses_[kind].resize(number + 1, kNeverLoaded);
  return uses_[kind][number];
}

// Seconds to load a unit. For a slot that was never used the system has to find memory first, which
// takes time from tasks that are computed meanwhile.
double PassSimulator::load_seconds(const Task& task) {
  const MachineProfile& machine = with_.profile.machine;
  const auto bytes = static_cast<double>(task.bytes);
  const Resource slot{Place::slot, task.slot, task.unit.kind, task.tier};
  const bool used_before = std::exchange(uses_of(slot), 0) != kNeverLoaded;
  const double rate = disk_bytes_per_second();
  if (used_before || machine.disk().bytes_per_second_into_new_memory <= 0) {
    return seconds_at(rate, bytes);
  }
  const double seconds =
      seconds_at(std::min(machine.disk().bytes_per_second_into_new_memory, rate), bytes);
  taken_seconds_ += seconds * (1.0 - 1.0 / machine.cpu().takes_while_finding_memory);
  return seconds;
}

double PassSimulator::seconds(const Task& task) {
  const ModelProfile& operations = with_.profile.model;
  const LayerProfile& layer = operations.of_layer(task.layer.value);
  const auto bytes = static_cast<double>(task.bytes);
  switch (task.work) {
    case Work::fetch:
      return load_seconds(task);
    case Work::load:
      if (task.offset == 0 && task.sliced == 0) ++loads_[task.unit];
      return policy_.layout.host() ? weight_link_seconds(bytes) : load_seconds(task);
    case Work::load_kv:
    case Work::store_kv:
      return kv_seconds(task);
    case Work::settle:
      return 2.0 * bytes / with_.profile.machine.cpu().memory_bytes_per_second;
    case Work::embed:
      return operations.embed.at(shape_.rows());
    case Work::logits:
      return operations.logits.at(shape_.logit_rows);
    case Work::project:
      return layer.attention_products.at(shape_.rows()) * (1.0 - output_share(task.layer));
    case Work::project_back:
      return layer.attention_products.at(shape_.rows()) * output_share(task.layer);
    case Work::queries_down:
    case Work::rows_down:
      return with_.profile.machine.link().rows_down.at(bytes);
    case Work::attended_up:
    case Work::rows_up:
      return up_seconds(bytes);
    case Work::attention_on_cpu:
      return shape_.decoding_rows * layer.attend_decode_on_cpu.at(shape_.positions) *
             beside_copies();
    case Work::attention: {
      const auto prompt = static_cast<double>(shape_.prompt_tokens);
      const double products = layer.attention_products.at(shape_.rows());
      const bool crosses = with_.model.encoder && task.layer.value >= with_.model.encoder_layers();
      if (crosses && shape_.encodes) return products * kCrossProducts;
      const double encoded = crosses ? layer.attend_encoded.at(shape_.encoded) : 0.0;
      return products * (crosses ? 1.0 + kCrossProducts : 1.0) +
             shape_.decoding_rows * layer.attend_decode.at(shape_.positions) +
             shape_.rows() * encoded +
             (shape_.prompt_rows > 0 ? shape_.prompt_rows / prompt * layer.attend_prefill.at(prompt)
                                     : 0.0);
    }
    case Work::gate:
      return layer.route.at(shape_.rows());
    case Work::expert:
      return expert_seconds(task);
    case Work::expert_on_cpu:
      return layer.expert_on_cpu.at(rows_of(task)) * beside_copies() * (1.0 - slice_of(task));
    case Work::scatter:
      return operations.embed.at(rows_of(task));  // rows are copied as embed copies them
    case Work::combine:
      return layer.combine.at(shape_.rows());
    case Work::count_:
      break;
  }
  return 0.0;
}

// The time of a task. Computing on the CPU takes longer while a disk is read, and while the system
// finds memory for the bytes read.
std::chrono::nanoseconds PassSimulator::cost(const Task& task) {
  const MachineProfile& machine = with_.profile.machine;
  const bool on_device = policy_.layout.host() != nullptr;
  if (task.lane != Lane::kCompute || on_device) return nanoseconds(seconds(task));
  const double undisturbed =
      seconds(task) * (1.0 + reading_share_ * (machine.cpu().takes_while_reading - 1.0));
  const double taken =
      std::min(taken_seconds_, undisturbed * (machine.cpu().takes_while_finding_memory - 1.0));
  taken_seconds_ -= taken;
  return nanoseconds(undisturbed + taken);
}

// The share of the output projection in the products around attention, by the weights they read.
double PassSimulator::output_share(LayerId layer) const {
  const Attention& shape = with_.model.layer(layer).attention;
  const auto attended = static_cast<double>(shape.output_width());
  return attended / (attended + static_cast<double>(shape.input_width()));
}

// Time of the CPU as a multiple of its time alone: the CPU and the link read one memory, and each
// slows the other down.
double PassSimulator::beside_copies() const {
  return 1.0 + copying_share_ * (with_.profile.machine.cpu().takes_while_copying - 1.0);
}

// Time of copies to a device as a multiple of their time while the CPU is idle.
double PassSimulator::beside_cpu() const {
  return 1.0 + cpu_share_ * (with_.profile.machine.link().takes_while_computing - 1.0);
}

// Seconds of a copy to a device that something waits for, while weights are copied too.
double PassSimulator::up_seconds(double bytes) const {
  const MachineProfile& machine = with_.profile.machine;
  return machine.link().rows_up.at(bytes) *
         (1.0 + copying_share_ * (machine.link().rows_take_while_copying - 1.0));
}

double PassSimulator::weight_link_seconds(double bytes) const {
  const MachineProfile& machine = with_.profile.machine;
  const double alone = bytes > 0 ? machine.link().weights.at(bytes) : 0.0;
  return alone / (1.0 - kv_share_) * beside_cpu();
}

double PassSimulator::disk_bytes_per_second() const {
  const MachineProfile& machine = with_.profile.machine;
  const double alone = machine.disk().bytes_per_second;
  if (machine.disk().bytes_per_second_while_computing <= 0) return alone;
  return alone + computing_share_ * (machine.disk().bytes_per_second_while_computing - alone);
}

}  // namespace klotski
