#include "schedule/pass.h"

namespace klotski {

namespace {

// Algorithm 1, lines 11-16: batch by batch, the keys and values of the next one on their way.
void attend(FragmentBuilder& build, LayerId layer) {
  build.need(attention_unit(layer));
  build.load_kv(layer, 0);
  for (int32_t k = 0; k < build.micro_batches(); ++k) {
    build.load_kv(layer, k + 1);
    build.attention(layer, k);
    build.store_kv(layer, k);
  }
  build.done(attention_unit(layer));
}

LayerId after(const ModelDescription& model, LayerId layer) {
  return LayerId((layer.value + 1) % model.layer_count());
}

}  // namespace

void run_pass(const Schedule& schedule, FragmentBuilder& build, TaskSink& sink) {
  const ModelDescription& model = build.known().model;
  build.need(model_unit());
  for (int32_t k = 0; k < build.micro_batches(); ++k) build.embed(k);
  schedule.prefetch(build, LayerId(0));
  for (int64_t j = 0; j < model.layer_count(); ++j) {
    const LayerId layer(j);
    build.now_at(layer);
    attend(build, layer);
    build.need(gate_unit(layer));
    for (int32_t k = 0; k < build.micro_batches(); ++k) schedule.gate(build, layer, k);
    sink.submit(build.take());

    Activated activated;
    for (int32_t k = 0; k < build.micro_batches(); ++k) {
      activated.push_back(sink.chosen(layer, k));
      schedule.gate_finished(build, layer, k, activated.back());
      sink.submit(build.take());
    }
    schedule.experts(build, layer, activated);
    schedule.prefetch(build, after(model, layer));
    sink.submit(build.take());
  }
}

}  // namespace klotski
