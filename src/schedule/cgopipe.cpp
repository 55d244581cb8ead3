#include <algorithm>

#include "schedule/pages.h"
#include "schedule/strategy.h"

namespace klotski {

namespace {

// MoE-Lightning's CGOPipe: section 4.1, Algorithm 1. Attention of decoding rows runs on the CPU,
// two micro-batches ahead of the device's next step for them; the next layer's weights come into
// the other half of a double buffer in as many pages as there are micro-batches, one between the
// rows of each. Prompts run as the paper has it: layer by layer, all of it on the device.
class CgoPipe : public Schedule {
 public:
  void prefetch(FragmentBuilder& build, LayerId layer) override { blocks_->prefetch(build, layer); }
  void gate(FragmentBuilder& build, LayerId layer, int32_t micro_batch) override {
    blocks_->gate(build, layer, micro_batch);
  }
  void gate_finished(FragmentBuilder& build, LayerId layer, int32_t micro_batch,
                     const std::vector<ExpertId>& chosen) override {
    blocks_->gate_finished(build, layer, micro_batch, chosen);
  }
  void experts(FragmentBuilder& build, LayerId layer, const Activated& activated) override {
    blocks_->experts(build, layer, activated);
  }

  void layers(FragmentBuilder& build, TaskSink& sink) override {
    if (!fits(build)) return Schedule::layers(build, sink);
    const auto layer_count = static_cast<int32_t>(build.context().model.layer_count());
    const int32_t batches = build.micro_batches();
    const int32_t ahead = std::min(kAttentionAhead, batches);
    const auto layer_of = [&](int32_t i) { return LayerId(i % layer_count); };
    // j counts on into the next layer: its first batches are done with this one by then.
    const auto pre_attention = [&](int32_t i, int32_t j) {
      i += j / batches;
      if (i < layer_count) build.begin_attention_elsewhere(layer_of(i), j % batches);
    };

    blocks_->prefetch(build, LayerId(0));  // units that the pass before has not left there
    build.need(attention_unit(LayerId(0)));
    for (int32_t j = 0; j < ahead; ++j) pre_attention(0, j);  // lines 3-7
    for (int32_t i = 0; i < layer_count; ++i) {               // lines 8-17
      build.now_at(layer_of(i));
      // Attention comes as a whole: it is used before the last page is there.
      build.need(attention_unit(layer_of(i + 1)));
      const PageTable pages = page_table(build.lease_layer(layer_of(i + 1)), batches);
      for (int32_t j = 0; j < ahead; ++j) build.pin_page(pages[static_cast<size_t>(j)]);
      for (int32_t j = 0; j < batches; ++j) {
        build.attended_up(layer_of(i), j);               // LoadH
        build.load_page(pages[static_cast<size_t>(j)]);  // W_PinToG
        post_attention(build, sink, layer_of(i), j);     // PostAttn
        pre_attention(i, j + ahead);                     // PreAttn, OffloadQKV, CPUAttn
        if (j + ahead < batches) build.pin_page(pages[static_cast<size_t>(j + ahead)]);  // W_CToPin
      }
      build.release_layer(layer_of(i));
      sink.submit(build.take());
      sink.layer_submitted(layer_of(i));
    }
  }

 private:
  // All rows decode with attention on the CPU, and there are slots for two layers.
  static bool fits(const FragmentBuilder& build) {
    for (int32_t k = 0; k < build.micro_batches(); ++k) {
      if (!build.attends_elsewhere(k)) return false;
    }
    return build.has_double_buffer();
  }

  // The output projection, then the experts that the micro-batch's rows chose.
  static void post_attention(FragmentBuilder& build, TaskSink& sink, LayerId layer,
                             int32_t micro_batch) {
    build.project_back(layer, micro_batch);
    build.need(gate_unit(layer));
    build.gate(layer, micro_batch);
    sink.submit(build.take());
    for (const ExpertId expert : sink.chosen(layer, micro_batch)) {
      build.need(build.expert_of(layer, expert));
      build.expert(layer, expert, micro_batch);
    }
    build.combine(layer, micro_batch);
  }

  std::unique_ptr<Schedule> blocks_ = make_multi_batch();
};

}  // namespace

std::unique_ptr<Schedule> make_cgopipe() { return std::make_unique<CgoPipe>(); }

}  // namespace klotski
