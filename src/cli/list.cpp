#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <new>

#include "base/bytes.h"
#include "base/error.h"
#include "base/json.h"
#include "cli/command.h"
#include "cli/model_list.h"
#include "cli/session_flags.h"
#include "session/session.h"
#include "weights/hub_cache.h"

namespace klotski {

namespace {

constexpr std::chrono::seconds kListTime{
    10};                                  // models that are not looked at by then are named only
constexpr int64_t kListedContext = 8192;  // positions of the conversation that is planned

struct ListOptions {
  SessionFlags flags;
  std::vector<std::string> folders;
  bool json = false;
};

struct ListedModel {
  std::string name;
  std::string family{};
  uint64_t bytes = 0;
  bool runs = false;
  std::string how{};  // where its weights would lie, or why it does not run
};

uint64_t bytes_of_tensors(const OpenedModel& model) {
  uint64_t bytes = 0;
  for (const TensorEntry& entry : model.checkpoint.tensors()) bytes += entry.bytes;
  return bytes;
}

// The place of a model's experts by the slots that a plan has for them; the weights that every
// token uses come first in every plan.
std::string places_of_experts(const RunPlan& plan, int64_t experts) {
  constexpr size_t kExpert = index_of(UnitKind::expert);
  const auto share = [&](const MemoryPlan& memory) {
    return static_cast<double>(std::min(memory.slots[kExpert], experts)) /
           static_cast<double>(std::max<int64_t>(experts, 1));
  };
  const std::string first = plan.host ? "VRAM" : "RAM";
  if (plan.memory.slots[kExpert] >= experts) return fmt::format("all weights in {}", first);
  std::string text =
      fmt::format("{:.0f} % of the experts in {}", 100.0 * share(plan.memory), first);
  if (!plan.host) return text + ", the others come from disk";
  if (plan.host->slots[kExpert] >= experts) return text + ", the others come from RAM";
  return text +
         fmt::format(", {:.0f} % in RAM, the others come from disk", 100.0 * share(*plan.host));
}

// Plans a conversation by bytes alone: nothing is measured and no weight is read.
void look_at(ListedModel& listed, const std::string& place, const SessionOptions& options) {
  try {
    const auto model = open_model(place);
    listed.family = model->description.family;
    listed.bytes = bytes_of_tensors(*model);
    Session session(model, options);
    const int64_t positions = std::min(model->description.max_positions, kListedContext);
    const RunPlan& plan =
        session.plan({.tokens_per_sequence = positions, .prompt_tokens = positions / 2});
    listed.runs = true;
    listed.how = places_of_experts(
        plan, static_cast<int64_t>(units_of(model->description, UnitKind::expert).size()));
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::usage || error.kind() == ErrorKind::device_lost) throw;
    listed.how = one_line(error.what(), 400);
  } catch (const std::bad_alloc&) {
    listed.how = "its files ask for more memory than there is";
  }
}

std::string list_text(const std::vector<ListedModel>& models) {
  constexpr size_t kWidestName = 60;
  size_t width = 4;
  for (const ListedModel& model : models) {
    width = std::max(width, std::min(model.name.size(), kWidestName));
  }
  std::string text = fmt::format("{:<{}}  {:<12} {:>10}  here\n", "name", width, "family", "size");
  for (const ListedModel& model : models) {
    text += fmt::format("{:<{}}  {:<12} {:>10}  {}{}\n", model.name, width,
                        model.family.empty() ? "-" : model.family,
                        model.bytes == 0 ? "-" : format_bytes(model.bytes),
                        model.runs ? "" : "no: ", model.how);
  }
  return text;
}

std::string list_json(const std::vector<ListedModel>& models) {
  Json rows = Json::array();
  for (const ListedModel& model : models) {
    rows.push_back({{"name", model.name},
                    {"family", model.family},
                    {"bytes", model.bytes},
                    {"runs", model.runs},
                    {"how", model.how}});
  }
  return rows.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

int list_command(const ListOptions& options) {
  const ModelSearch search = find_models(hub_cache_folder(), options.folders);
  const auto deadline = std::chrono::steady_clock::now() + kListTime;
  std::vector<ListedModel> listed;
  for (const FoundModel& found : search.models) {
    listed.push_back({.name = one_line(found.name, 300)});
    if (std::chrono::steady_clock::now() > deadline) {
      listed.back().how = "not looked at, there are many models: name its folder alone";
    } else {
      look_at(listed.back(), found.name, options.flags.session_options());
    }
  }
  write_out(options.json ? list_json(listed) : list_text(listed));
  if (search.cut_short) write_err("klotski: there are more models than are listed here\n");
  return 0;
}

}  // namespace

void add_list_command(CLI::App& app, Action& action) {
  auto options = std::make_shared<ListOptions>();
  CLI::App* command =
      app.add_subcommand("list", "List the models on this machine and how each would run here");
  command->add_option("FOLDER", options->folders,
                      "Folders to look for models in, besides the Hugging Face cache");
  command->add_flag("--json", options->json, "Print the list as JSON");
  add_memory_flags(*command, options->flags);
  command->callback([options, &action] { action = [options] { return list_command(*options); }; });
}

}  // namespace klotski
