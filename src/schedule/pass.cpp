#include "schedule/pass.h"

namespace klotski {

namespace {

// Algorithm 1, lines 11-16: batch by batch, while the keys and values of the next batch are on
// their way. Batches whose attention the CPU computes begin some batches ahead.
void attend(FragmentBuilder& build, LayerId layer) {
  build.need(attention_unit(layer));
  build.load_kv(layer, 0);
  const int32_t batches = build.micro_batches();
  for (int32_t ahead = 0; ahead < batches + kAttentionAhead; ++ahead) {
    if (ahead < batches && build.attends_elsewhere(ahead))
      build.begin_attention_elsewhere(layer, ahead);
    const int32_t k = ahead - kAttentionAhead;
    if (k < 0) continue;
    build.load_kv(layer, k + 1);
    if (build.attends_elsewhere(k)) {
      build.attended_up(layer, k);
      build.project_back(layer, k);
    } else {
      build.attention(layer, k);
      build.store_kv(layer, k);
    }
  }
  build.done(attention_unit(layer));
}

// The layer after this one; after the last, the first layer of a pass that decodes.
LayerId after(const ModelDescription& model, LayerId layer) {
  const PassLayers next_pass = model.pass_layers(/*encodes=*/false);
  return LayerId(layer.value + 1 < next_pass.end ? layer.value + 1 : next_pass.first);
}

}  // namespace

void Schedule::layers(FragmentBuilder& build, TaskSink& sink) {
  const ModelDescription& model = build.context().model;
  const PassLayers layers = build.context().layers();
  const auto bring = [&](LayerId layer) {
    if (layers.feeds_forward(layer)) return prefetch(build, layer);
    build.request(attention_unit(layer), LoadReason::certain);
  };
  bring(LayerId(layers.first));
  for (int64_t j = layers.first; j < layers.end; ++j) {
    const LayerId layer(j);
    build.now_at(layer);
    attend(build, layer);
    if (!layers.feeds_forward(layer)) {
      bring(after(model, layer));
      sink.submit(build.take());
      continue;
    }
    build.need(gate_unit(layer));
    for (int32_t k = 0; k < build.micro_batches(); ++k) gate(build, layer, k);
    sink.submit(build.take());

    Activated activated;
    for (int32_t k = 0; k < build.micro_batches(); ++k) {
      activated.push_back(sink.chosen(layer, k));
      if (k == 0) withdraw_guesses(build, sink);
      gate_finished(build, layer, k, activated.back());
      sink.submit(build.take());
    }
    experts(build, layer, activated);
    sink.submit(build.take());
    sink.layer_submitted(layer);
    bring(after(model, layer));
    sink.submit(build.take());
  }
}

void run_pass(Schedule& schedule, FragmentBuilder& build, TaskSink& sink) {
  build.need(model_unit());
  for (int32_t k = 0; k < build.micro_batches(); ++k) build.embed(k);
  schedule.layers(build, sink);
}

}  // namespace klotski
