// The extension module klotski._engine: LocalModel as Python sees it. The package around it
// (python/klotski/) has the interface for users.

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "python/local_model.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace klotski {

namespace {

const char* exception_name(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::usage:
      return "RequestError";
    case ErrorKind::bad_model:
      return "ModelError";
    case ErrorKind::does_not_fit:
      return "DoesNotFitError";
    case ErrorKind::device_unavailable:
      return "DeviceUnavailableError";
    case ErrorKind::device_lost:
      return "DeviceLostError";
    case ErrorKind::internal:
      break;
  }
  return "InternalError";
}

nb::object exception_class(ErrorKind kind) {
  return nb::module_::import_("klotski.errors").attr(exception_name(kind));
}

void translate(const std::exception_ptr& thrown, void*) {
  try {
    std::rethrow_exception(thrown);
  } catch (const Error& error) {
    PyErr_SetString(exception_class(error.kind()).ptr(), error.what());
  }
}

// Between two pieces of a long loading: Ctrl-C ends it.
void check_signals() {
  const nb::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

// A model of this process. A child that was forked has a copy without the threads that compute: it
// may neither use nor destroy it.
class Model {
 public:
  Model(const std::string& model, LocalModel::Options options) {
    const nb::gil_scoped_release free;
    model_ = std::make_unique<LocalModel>(model, std::move(options));
  }
  ~Model() { close(); }
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  LocalModel& get() {
    if (::getpid() != process_) {
      fail(
          ErrorKind::usage,
          "the model was opened by process {}, of which this one is a fork; open it here, or start "
          "processes with multiprocessing's \"spawn\"",
          process_);
    }
    if (!model_) fail(ErrorKind::usage, "the model is closed");
    return *model_;
  }
  void close() {
    if (::getpid() != process_) {
      [[maybe_unused]] const LocalModel* const of_parent = model_.release();
      return;
    }
    const nb::gil_scoped_release free;
    model_.reset();
  }

 private:
  pid_t process_ = ::getpid();
  std::unique_ptr<LocalModel> model_;
};

LocalWork work_of(int64_t sequences, int64_t prompt_tokens, int64_t max_tokens,
                  int64_t typical_tokens) {
  return {.sequences = sequences,
          .prompt_tokens = prompt_tokens,
          .generated_tokens = max_tokens,
          .typical_tokens = typical_tokens};
}

struct Limits {
  std::optional<uint64_t> ram, vram, kv_limit;
  std::string kv_spill, strategy, precision, device, attention, kernels;
  std::optional<int64_t> micro_batch, n_batches;
  int64_t draft_tokens = 0;
  int64_t sequences = 1;
  int64_t tokens = 0;  // prompt and answer, at least; 0: by the first work
};

LocalModel::Options options_of(const Limits& given) {
  LocalModel::Options options;
  RunLimits& limits = options.session.limits;
  limits.ram_bytes = given.ram;
  limits.vram_bytes = given.vram;
  limits.kv_bytes = given.kv_limit;
  options.session.pipeline.spill_folder = given.kv_spill;
  limits.strategy = strategy_choice("strategy", given.strategy);
  limits.cpu_attention = cpu_attention_choice("attention", given.attention);
  limits.precision = precision_choice("precision", given.precision);
  options.session.kernels = kernels_choice("kernels", given.kernels);
  options.session.device = given.device;
  limits.micro_batch = given.micro_batch;
  limits.micro_batches = given.n_batches;
  limits.draft_tokens = given.draft_tokens;
  options.least_work = work_of(given.sequences, given.tokens, 1, 0);
  options.progress = check_signals;
  return options;
}

nb::tuple logprobs_tuple(const PositionLogprobs& position) {
  nb::list top;
  for (const TokenLogprob& one : position.top) top.append(nb::make_tuple(one.token, one.logprob));
  return nb::make_tuple(position.chosen, top);
}

const char* finish_name(const LocalUpdate& update) {
  if (update.stopped) return "stop_text";
  switch (update.finish) {
    case Finish::stop_token:
      return "stop_token";
    case Finish::length:
      return "length";
    case Finish::failed:
      return "failed";
    case Finish::not_yet:
      break;
  }
  return "";
}

void bind_update(nb::module_& module) {
  nb::class_<LocalUpdate>(module, "Update", "News of a request since its last update.")
      .def_ro("request", &LocalUpdate::request)
      .def_ro("tokens", &LocalUpdate::tokens)
      .def_ro("text", &LocalUpdate::text)
      .def_ro("first_token_seconds", &LocalUpdate::first_token_seconds)
      .def_ro("seconds", &LocalUpdate::seconds)
      .def_prop_ro("finish", &finish_name)
      .def_prop_ro("error",
                   [](const LocalUpdate& update) -> nb::object {
                     if (update.finish != Finish::failed) return nb::none();
                     return exception_class(update.error_kind)(update.error);
                   })
      .def_prop_ro("logprobs", [](const LocalUpdate& update) {
        nb::list all;
        for (const PositionLogprobs& one : update.logprobs) all.append(logprobs_tuple(one));
        return all;
      });
}

template <typename Number>
nb::bytes bytes_of(const std::vector<Number>& numbers) {
  return nb::bytes(numbers.data(), numbers.size() * sizeof(Number));
}

nb::dict routing_dict(const RoutedTokens& routed) {
  nb::list layers;
  for (const RoutedLayer& layer : routed.shape.layers) {
    layers.append(nb::make_tuple(layer.layer.value, layer.experts, layer.top_k));
  }
  nb::dict result;
  result["model"] = routed.shape.model;
  result["layers"] = layers;
  result["sequence"] = bytes_of(routed.sequence);
  result["position"] = bytes_of(routed.position);
  result["token"] = bytes_of(routed.token);
  result["choices"] = bytes_of(routed.choices);
  return result;
}

// Runs a function of the model without the interpreter's lock.
template <typename Function>
auto freely(Model& model, const Function& function) {
  LocalModel& local = model.get();
  const nb::gil_scoped_release free;
  return function(local);
}

int64_t submit(Model& model, std::vector<TokenId> prompt, SamplingOptions sampling,
               int64_t max_tokens, std::vector<std::string> stop,
               std::vector<TokenId> stop_token_ids, bool ignore_eos,
               std::optional<int64_t> logprobs, bool chat, bool streamed) {
  return model.get().submit({.request = {.prompt = std::move(prompt),
                                         .sampling = std::move(sampling),
                                         .max_tokens = max_tokens,
                                         .stop_tokens = std::move(stop_token_ids),
                                         .logprobs = logprobs},
                             .stop_strings = std::move(stop),
                             .ignore_end = ignore_eos,
                             .begins_a_text = chat,
                             .streamed = streamed});
}

void bind_sampling(nb::module_& module) {
  nb::class_<SamplingOptions>(module, "Sampling", "How the next token is chosen.")
      .def(nb::init<>())
      .def_rw("temperature", &SamplingOptions::temperature)
      .def_rw("top_k", &SamplingOptions::top_k)
      .def_rw("top_p", &SamplingOptions::top_p)
      .def_rw("min_p", &SamplingOptions::min_p)
      .def_rw("repetition_penalty", &SamplingOptions::repetition_penalty)
      .def_rw("presence_penalty", &SamplingOptions::presence_penalty)
      .def_rw("frequency_penalty", &SamplingOptions::frequency_penalty)
      .def_rw("logit_bias", &SamplingOptions::logit_bias)
      .def_rw("seed", &SamplingOptions::seed);
}

void bind_limits(nb::module_& module) {
  nb::class_<Limits>(module, "Limits", "Limits and choices of a model's session.")
      .def(nb::init<>())
      .def_rw("ram", &Limits::ram, nb::arg().none())
      .def_rw("vram", &Limits::vram, nb::arg().none())
      .def_rw("kv_limit", &Limits::kv_limit, nb::arg().none())
      .def_rw("kv_spill", &Limits::kv_spill)
      .def_rw("strategy", &Limits::strategy)
      .def_rw("precision", &Limits::precision)
      .def_rw("device", &Limits::device)
      .def_rw("attention", &Limits::attention)
      .def_rw("kernels", &Limits::kernels)
      .def_rw("micro_batch", &Limits::micro_batch, nb::arg().none())
      .def_rw("n_batches", &Limits::n_batches, nb::arg().none())
      .def_rw("draft_tokens", &Limits::draft_tokens)
      .def_rw("sequences", &Limits::sequences)
      .def_rw("tokens", &Limits::tokens);
}

void bind_model(nb::module_& module) {
  nb::class_<Model>(module, "Model", "A model that answers the requests of this process.")
      .def(
          "__init__",
          [](Model* self, const std::string& model, const Limits& limits) {
            new (self) Model(model, options_of(limits));
          },
          "model"_a, "limits"_a)
      .def("close", &Model::close)
      .def("folder", [](Model& model) { return model.get().model().folder.string(); })
      .def("positions", [](Model& model) { return model.get().model().description.max_positions; })
      .def("vocabulary", [](Model& model) { return model.get().model().description.vocabulary; })
      .def("suggested_sampling", [](Model& model) { return model.get().suggested_sampling(); })
      .def("lossy", [](Model& model) { return model.get().lossy(); })
      .def(
          "encode",
          [](Model& model, const std::string& text) {
            return freely(model, [&](LocalModel& local) { return local.prompt_of(text); });
          },
          "text"_a)
      .def(
          "encode_chat",
          [](Model& model, const std::string& messages, const std::string& tools) {
            return freely(model, [&](LocalModel& local) {
              return local.prompt_of_chat(
                  parse_ordered_json(messages, "messages", ErrorKind::usage),
                  parse_ordered_json(tools, "tools", ErrorKind::usage));
            });
          },
          "messages"_a, "tools"_a)
      .def(
          "decode",
          [](Model& model, const std::vector<TokenId>& tokens) {
            return model.get().tokenizer().decode(tokens);
          },
          "tokens"_a)
      .def(
          "expect",
          [](Model& model, int64_t sequences, int64_t prompt_tokens, int64_t max_tokens,
             int64_t typical_tokens) {
            model.get().expect(work_of(sequences, prompt_tokens, max_tokens, typical_tokens));
          },
          "sequences"_a, "prompt_tokens"_a, "max_tokens"_a, "typical_tokens"_a)
      .def("submit", &submit, "prompt"_a, "sampling"_a, "max_tokens"_a, "stop"_a,
           "stop_token_ids"_a, "ignore_eos"_a, "logprobs"_a.none(), "chat"_a, "streamed"_a)
      .def(
          "cancel", [](Model& model, int64_t request) { model.get().cancel(request); }, "request"_a)
      .def("busy", [](Model& model) { return model.get().busy(); })
      .def("wants_more", [](Model& model) { return model.get().wants_more(); })
      .def("step",
           [](Model& model) {
             return freely(model, [](LocalModel& local) { return local.step(); });
           })
      .def(
          "plan",
          [](Model& model, int64_t sequences, int64_t prompt_tokens, int64_t max_tokens) {
            return freely(model, [&](LocalModel& local) {
              return local.plan(work_of(sequences, prompt_tokens, max_tokens, 0)).dump();
            });
          },
          "sequences"_a, "prompt_tokens"_a, "max_tokens"_a)
      .def(
          "routed_tokens",
          [](Model& model, const std::vector<std::vector<TokenId>>& texts) {
            return routing_dict(
                freely(model, [&](LocalModel& local) { return local.routed_tokens(texts); }));
          },
          "texts"_a)
      .def("take_remarks", [](Model& model) { return model.get().take_remarks(); })
      .def("report", [](Model& model) { return model.get().report().dump(); });
}

}  // namespace

}  // namespace klotski

NB_MODULE(_engine, module) {
  using namespace klotski;
  module.doc() = "The engine of klotski; see the package for its interface.";
  nb::set_leak_warnings(false);  // a model that lives as long as the program is no leak
  nb::register_exception_translator(translate);
  module.attr("version") = KLOTSKI_VERSION;
  module.def(
      "parse_size", [](const std::string& text) { return parse_bytes(text); }, "text"_a,
      "Bytes of a size such as 3GiB; None where it is none.");
  bind_update(module);
  bind_sampling(module);
  bind_limits(module);
  bind_model(module);
}
