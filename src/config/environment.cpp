#include "config/environment.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstdlib>

#include "base/error.h"
#include "config/nearest.h"

namespace sauropod::config {
namespace {

constexpr std::array kVariables = {
    EnvironmentVariable{"SAUROPOD_LOG", "info",
                        "The least severe messages that are logged: debug, info, warn or error"},
    EnvironmentVariable{"SAUROPOD_PROGRESS", "auto",
                        "How progress is shown: plain (a line now and then), off, or auto: a bar on a "
                        "terminal and plain lines elsewhere"},
    EnvironmentVariable{"SAUROPOD_CPU", "auto",
                        "The newest instructions that kernels on the processor may use: avx512, avx2, "
                        "portable (none beyond the compiler's), or auto: the best it has"},
    EnvironmentVariable{"NO_COLOR", "unset", "When set, messages have no colours"},
    EnvironmentVariable{"LC_ALL, LC_CTYPE, LANG", "unset",
                        "The progress bar is drawn with block characters when the first of these "
                        "that is set names UTF-8, and in ASCII otherwise"},
    EnvironmentVariable{"SAUROPOD_RANK", "unset",
                        "Set by sauropod launch, as the next ones: this process's rank, from 0"},
    EnvironmentVariable{"SAUROPOD_WORLD_SIZE", "unset", "The number of ranks"},
    EnvironmentVariable{"SAUROPOD_LOCAL_RANK", "unset", "The rank among those of this host"},
    EnvironmentVariable{"SAUROPOD_LOCAL_SIZE", "unset", "The number of ranks on this host"},
    EnvironmentVariable{"SAUROPOD_HOST", "the host's name", "The name of this host in messages"},
    EnvironmentVariable{"SAUROPOD_STORE", "unset",
                        "host:port of the store that the launcher offers to its ranks"},
    EnvironmentVariable{"SAUROPOD_ATTEMPT", "0", "How often the launcher has started the ranks before"},
    EnvironmentVariable{"SAUROPOD_FLIGHT_RECORDER", "unset",
                        "The file in which this rank keeps its last calls (docs/flight-recorder.md)"},
    EnvironmentVariable{"SAUROPOD_SUPERVISOR", "unset",
                        "The process with which this one ends, however that one ends"},
    EnvironmentVariable{"OMP_NUM_THREADS", "unset",
                        "The threads of a computation, where train.threads is 0; set by sauropod launch to this "
                        "rank's share of the processors unless it is set already"},
    EnvironmentVariable{"RANK", "unset", "torchrun's, as the next ones: the rank"},
    EnvironmentVariable{"WORLD_SIZE", "unset", "The number of ranks"},
    EnvironmentVariable{"LOCAL_RANK", "unset", "The rank among those of this host"},
    EnvironmentVariable{"LOCAL_WORLD_SIZE", "unset", "The number of ranks on this host"},
    EnvironmentVariable{"MASTER_ADDR", "unset",
                        "The host of rank 0; also inside Slurm and OpenMPI, when it is set"},
    EnvironmentVariable{"MASTER_PORT", "29500", "The port on which rank 0 makes the store"},
    EnvironmentVariable{"TORCHELASTIC_USE_AGENT_STORE", "unset",
                        "True: torchrun itself has the store at that port"},
    EnvironmentVariable{"TORCHELASTIC_RESTART_COUNT", "0", "How often torchrun has started the ranks"},
    EnvironmentVariable{"OMPI_COMM_WORLD_RANK", "unset", "OpenMPI's, as the next ones: the rank"},
    EnvironmentVariable{"OMPI_COMM_WORLD_SIZE", "unset", "The number of ranks"},
    EnvironmentVariable{"OMPI_COMM_WORLD_LOCAL_RANK", "unset", "The rank among those of this host"},
    EnvironmentVariable{"OMPI_COMM_WORLD_LOCAL_SIZE", "unset", "The number of ranks on this host"},
    EnvironmentVariable{"PMIX_NAMESPACE", "unset", "The job's name: the store's port is derived from it"},
    EnvironmentVariable{"SLURM_PROCID", "unset", "Slurm's, as the next ones: the rank"},
    EnvironmentVariable{"SLURM_NTASKS", "unset", "The number of ranks"},
    EnvironmentVariable{"SLURM_STEP_NUM_TASKS", "unset", "The number of ranks, where a step has its own"},
    EnvironmentVariable{"SLURM_LOCALID", "unset", "The rank among those of this host"},
    EnvironmentVariable{"SLURM_STEP_NODELIST", "unset", "The hosts; the first one has rank 0"},
    EnvironmentVariable{"SLURM_NODELIST", "unset", "The hosts, where SLURM_STEP_NODELIST is not set"},
    EnvironmentVariable{"SLURM_JOB_ID", "unset", "The job: the store's port is derived from it"},
    EnvironmentVariable{"SLURM_STEP_ID", "unset", "The step: only what srun starts is a rank"},
    EnvironmentVariable{"SLURMD_NODENAME", "unset", "The name of this host"},
    EnvironmentVariable{"SLURM_RESTART_COUNT", "0", "How often the job was requeued"},
};

std::string read(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

std::string choice(const char* name, const std::vector<std::string>& choices,
                   const std::string& standard) {
  const std::string value = read(name);
  if (value.empty()) return standard;
  if (std::find(choices.begin(), choices.end(), value) == choices.end()) {
    const auto name_meant = nearest(value, choices);
    base::fail_usage("environment variable {}={}: it must be one of {}{}", name, value,
                     fmt::join(choices, ", "),
                     name_meant ? fmt::format(" (did you mean {}?)", *name_meant) : "");
  }
  return value;
}

}  // namespace

std::span<const EnvironmentVariable> environment_variables() { return kVariables; }

std::string log_level() {
  return choice("SAUROPOD_LOG", {"debug", "info", "warn", "error"}, "info");
}

ProgressStyle progress_style() {
  const std::string value = choice("SAUROPOD_PROGRESS", {"auto", "plain", "off"}, "auto");
  if (value == "plain") return ProgressStyle::plain;
  if (value == "off") return ProgressStyle::off;
  return ProgressStyle::automatic;
}

std::string cpu_kernels() {
  return choice("SAUROPOD_CPU", {"auto", "avx512", "avx2", "portable"}, "auto");
}

std::optional<std::string> launch_variable(std::string_view name) {
  SAUROPOD_CHECK(std::any_of(kVariables.begin(), kVariables.end(),
                             [&](const EnvironmentVariable& known) { return known.name == name; }),
                 "environment variable {} is not declared", name);
  const std::string value = read(std::string(name).c_str());
  if (value.empty()) return std::nullopt;
  return value;
}

std::optional<int> openmp_threads() {
  const std::string value = read("OMP_NUM_THREADS");
  if (value.empty()) return std::nullopt;
  int number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  const bool whole = end == value.data() + value.size() || *end == ',';  // a list has a number for each level
  if (error != std::errc{} || !whole || number < 1)
    base::fail_usage("environment variable OMP_NUM_THREADS={}: it must be a whole number of at least 1", value);
  return number;
}

std::vector<std::string> environment() {
  std::vector<std::string> entries;
  for (char** entry = environ; *entry; ++entry) entries.emplace_back(*entry);
  return entries;
}

bool color_allowed() { return read("NO_COLOR").empty(); }

bool utf8_terminal() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    std::string value = read(name);
    if (value.empty()) continue;
    std::transform(value.begin(), value.end(), value.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return value.find("utf-8") != std::string::npos || value.find("utf8") != std::string::npos;
  }
  return false;
}

}  // namespace sauropod::config
