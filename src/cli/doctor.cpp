#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/cpu_limit.h"
#include "base/json.h"
#include "base/memory_limit.h"
#include "cli/advice.h"
#include "cli/command.h"
#include "cli/device_report.h"
#include "cli/history_report.h"
#include "cli/model_flags.h"
#include "cli/profile_report.h"
#include "cli/topology_report.h"
#include "device/device.h"
#include "kernels/cpu/cpu_processor.h"
#include "memory/disk_reader.h"
#include "probe/history.h"
#include "probe/probe.h"

namespace klotski {

namespace {

struct DoctorOptions {
  ModelFlags model;  // may name none
  bool json = false;
};

struct Findings {
  CpuKernels kernels;
  int machine_cpus = 0;  // switched on
  int allowed_cpus = 0;
  int threads = 0;
  MemoryLeft memory;
  ReadMethod disk_reads = ReadMethod::threads;
  Topology topology;
  DeviceList devices;
  HistorySummary history;
};

Findings gather() {
  const int threads = usable_cpus();
  const std::string machine = machine_name(threads);
  return {.kernels = cpu_kernels(),
          .machine_cpus = static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN)),
          .allowed_cpus = std::max(static_cast<int>(allowed_cpus().size()), threads),
          .threads = threads,
          .memory = memory_left(),
          .disk_reads = DiskReader(DiskReaderOptions{}).method(),
          .topology = topology_here(),
          .devices = list_devices(),
          .history = summarize(machine, remembered(machine))};
}

const char* name_of(ReadMethod method) {
  return method == ReadMethod::io_uring ? "io_uring" : "threads";
}

Json as_json(const Findings& found) {
  const auto bytes = [](const std::optional<uint64_t>& bound) {
    return bound ? Json(*bound) : Json(nullptr);
  };
  const CpuKernels& kernels = found.kernels;
  return {{"kernels",
           {{"chosen", kernels.chosen},
            {"forced", kernels.forced},
            {"available", kernels.available},
            {"bf16", kernels.bf16}}},
          {"cpus",
           {{"machine", found.machine_cpus},
            {"allowed", found.allowed_cpus},
            {"threads", found.threads}}},
          {"memory",
           {{"available", found.memory.least()},
            {"machine", bytes(found.memory.machine)},
            {"control_groups", bytes(found.memory.control_groups)},
            {"address_space", bytes(found.memory.address_space)},
            {"data", bytes(found.memory.data)}}},
          {"disk_reads", name_of(found.disk_reads)},
          {"topology", topology_json(found.topology)},
          {"devices", devices_json(found.devices, found.topology.displays)},
          {"history", history_json(found.history)}};
}

std::string as_text(const Findings& found) {
  std::string text;
  const auto line = [&](std::string_view label, const std::string& value) {
    text += fmt::format("{:<14}{}\n", label, value);
  };
  const CpuKernels& kernels = found.kernels;
  line("kernels", fmt::format("{} ({})", kernels.chosen,
                              kernels.forced ? "KLOTSKI_CPU" : "the fastest of this processor"));
  line("", fmt::format("KLOTSKI_CPU chooses of {}", fmt::join(kernels.available, ", ")));
  line("bf16 products", kernels.bf16 ? "by instructions of their own" : "as float32");
  line("threads",
       fmt::format("{}: {} of {} processors allowed{}", found.threads, found.allowed_cpus,
                   found.machine_cpus,
                   found.threads < found.allowed_cpus ? ", less by a control group's quota" : ""));
  const auto bytes = [](const std::optional<uint64_t>& bound) {
    return bound ? format_bytes(*bound) + " left" : "no limit";
  };
  const MemoryLeft& memory = found.memory;
  line("memory", fmt::format("{} available", format_bytes(memory.least())));
  line("", fmt::format("machine {}, control groups {}, address space {}, data {}",
                       bytes(memory.machine), bytes(memory.control_groups),
                       bytes(memory.address_space), bytes(memory.data)));
  line("disk reads", fmt::format("by {}", name_of(found.disk_reads)));
  return text + topology_text(found.topology) +
         devices_text(found.devices, found.topology.displays) + history_text(found.history);
}

std::vector<std::string> advice_on(const Findings& found, const MachineProfile* measured) {
  std::vector<std::string> advice = machine_advice(found.disk_reads, measured);
  for (std::string& line : topology_advice(found.topology)) advice.push_back(std::move(line));
  const std::optional<std::filesystem::path> cache = cache_folder();
  auto line = cache ? history_advice(found.history, *cache) : std::nullopt;
  if (line) advice.push_back(std::move(*line));
  return advice;
}

struct ProbedModel {
  std::shared_ptr<const OpenedModel> opened;
  Probed probed;
};

int doctor_command(const DoctorOptions& options) {
  const Findings found = gather();
  std::optional<ProbedModel> model;
  if (options.model.given()) {
    auto opened = open_model(options.model);
    Probed probed = probe_model(*opened, CpuProcessor(), Precision::bf16);
    model.emplace(ProbedModel{std::move(opened), std::move(probed)});
  }
  const std::vector<std::string> advice =
      advice_on(found, model ? &model->probed.profile.machine : nullptr);
  if (options.json) {
    Json document = as_json(found);
    document["advice"] = advice;
    if (model) document["profile"] = profile_json(*model->opened, model->probed);
    write_out(document.dump(2) + "\n");
    return 0;
  }
  std::string text = as_text(found);
  if (model) text += profile_text(*model->opened, model->probed);
  for (const std::string& line : advice) text += fmt::format("{:<14}{}\n", "advice", line);
  write_out(text);
  return 0;
}

}  // namespace

void add_doctor_command(CLI::App& app, Action& action) {
  auto options = std::make_shared<DoctorOptions>();
  CLI::App* command = app.add_subcommand(
      "doctor",
      "Describe this machine: instruction set, threads, memory, disk reads, NUMA nodes, display "
      "devices, accelerators, how long runs took compared with their plans, and advice; with a "
      "model also how fast the machine reads and multiplies its weights");
  add_model_flags(*command, options->model,
                  "Folder, GGUF file, bundled name or repository id. The machine is measured with "
                  "this model once, which takes seconds; the result is kept in $KLOTSKI_CACHE "
                  "(default: klotski in "
                  "the user's cache folder)");
  command->add_flag("--json", options->json, "Print the findings as JSON");
  command->callback(
      [options, &action] { action = [options] { return doctor_command(*options); }; });
}

}  // namespace klotski
