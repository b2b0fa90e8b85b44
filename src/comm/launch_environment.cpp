#include "comm/launch_environment.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "config/environment.h"

namespace sauropod::comm {
namespace {

// Ports that belong to one job, from below the range that systems hand out by themselves.
int port_of(std::string_view job) { return 15000 + static_cast<int>(base::hash64(job) % 15000); }

std::string own_name() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 && name[0] != 0 ? name : "localhost";
}

// Reads the variables of one launcher.
class Reader {
 public:
  Reader(const Variables& variables, std::string launcher)
      : variables_(variables), launcher_(std::move(launcher)) {}

  std::optional<std::string> find(std::string_view name) const { return variables_(name); }

  std::string text(std::string_view name) const {
    auto value = find(name);
    if (!value)
      base::fail_usage(
          "this process looks like one that {} started, but {} is not set. Start it through {}, or unset the "
          "other variables of {} to run as one rank",
          launcher_, name, launcher_, launcher_);
    return *value;
  }

  int number(std::string_view name, std::string_view value) const {
    int result = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), result);
    if (error != std::errc{} || end != value.data() + value.size() || result < 0)
      base::fail_usage("environment variable {}={}: it must be a whole number of at least 0", name, value);
    return result;
  }
  int number(std::string_view name) const { return number(name, text(name)); }
  int number_or(std::string_view name, int standard) const {
    const auto value = find(name);
    return value ? number(name, *value) : standard;
  }

  void place(LaunchEnvironment& at, std::string_view rank, std::string_view size, std::string_view local_rank,
             std::string_view local_size) const {
    at.source = launcher_;
    at.rank = number(rank);
    at.size = number(size);
    at.local_rank = local_rank.empty() ? -1 : number_or(local_rank, -1);
    at.local_size = local_size.empty() ? -1 : number_or(local_size, -1);
    if (at.size < 1 || at.rank >= at.size)
      base::fail_usage("{}={} and {}={} contradict each other: ranks count from 0", rank, at.rank, size,
                       at.size);
    if (at.local_size == 0 || at.local_size > at.size)
      base::fail_usage("{}={} and {}={} contradict each other", local_size, at.local_size, size, at.size);
    if (at.local_size > 0 && at.local_rank >= at.local_size)
      base::fail_usage("{}={} and {}={} contradict each other: ranks count from 0", local_rank,
                       at.local_rank, local_size, at.local_size);
    if (at.local_rank > at.rank)
      base::fail_usage("{}={} and {}={} contradict each other", local_rank, at.local_rank, rank, at.rank);
  }

  int port(std::string_view name, int standard) const {
    const int value = number_or(name, standard);
    if (value < 1 || value > 65535)
      base::fail_usage("environment variable {}={}: a port is between 1 and 65535", name, value);
    return value;
  }

 private:
  const Variables& variables_;
  std::string launcher_;
};

LaunchEnvironment from_own_launcher(const Variables& variables) {
  LaunchEnvironment at;
  const Reader reader(variables, "sauropod launch");
  reader.place(at, "SAUROPOD_RANK", "SAUROPOD_WORLD_SIZE", "SAUROPOD_LOCAL_RANK", "SAUROPOD_LOCAL_SIZE");
  if (const auto host = reader.find("SAUROPOD_HOST")) at.host = *host;
  at.attempt = reader.number_or("SAUROPOD_ATTEMPT", 0);
  if (at.size > 1) {
    const std::string store = reader.text("SAUROPOD_STORE");
    const auto colon = store.rfind(':');
    if (colon == std::string::npos || colon == 0)
      base::fail_usage("environment variable SAUROPOD_STORE={}: it must be host:port", store);
    at.store_host = store.substr(0, colon);
    at.store_port = reader.number("SAUROPOD_STORE", std::string_view(store).substr(colon + 1));
    at.store_hosted = true;
  }
  return at;
}

LaunchEnvironment from_torchrun(const Variables& variables) {
  LaunchEnvironment at;
  const Reader reader(variables, "torchrun");
  reader.place(at, "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE");
  at.attempt = reader.number_or("TORCHELASTIC_RESTART_COUNT", 0);
  if (at.size > 1) {
    at.store_host = reader.text("MASTER_ADDR");
    at.store_port = reader.port("MASTER_PORT", 29500);
    at.store_hosted = reader.find("TORCHELASTIC_USE_AGENT_STORE") == "True";
  }
  return at;
}

LaunchEnvironment from_openmpi(const Variables& variables) {
  LaunchEnvironment at;
  const Reader reader(variables, "OpenMPI");
  reader.place(at, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
               "OMPI_COMM_WORLD_LOCAL_SIZE");
  if (at.size > 1) {
    if (const auto host = reader.find("MASTER_ADDR")) {
      at.store_host = *host;
    } else if (at.local_size == at.size) {
      at.store_host = "127.0.0.1";
    } else {
      base::fail_usage(
          "OpenMPI started ranks on several hosts, and doesn't say where rank 0 is: start them with "
          "mpirun -x MASTER_ADDR=HOST, the first host of the host file");
    }
    at.store_port = reader.port("MASTER_PORT", port_of(reader.find("PMIX_NAMESPACE").value_or("")));
  }
  return at;
}

LaunchEnvironment from_slurm(const Variables& variables) {
  LaunchEnvironment at;
  const Reader reader(variables, "Slurm");
  const bool step_size = reader.find("SLURM_STEP_NUM_TASKS").has_value();
  reader.place(at, "SLURM_PROCID", step_size ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS", "SLURM_LOCALID", "");
  if (const auto host = reader.find("SLURMD_NODENAME")) at.host = *host;
  at.attempt = reader.number_or("SLURM_RESTART_COUNT", 0);
  if (at.size > 1) {
    if (const auto host = reader.find("MASTER_ADDR")) {
      at.store_host = *host;
    } else {
      const bool step_list = reader.find("SLURM_STEP_NODELIST").has_value();
      at.store_host =
          expand_slurm_hosts(reader.text(step_list ? "SLURM_STEP_NODELIST" : "SLURM_NODELIST")).front();
    }
    at.store_port = reader.port(
        "MASTER_PORT", port_of(reader.text("SLURM_JOB_ID") + "." + reader.text("SLURM_STEP_ID")));
  }
  return at;
}

// The shell of an allocation and a batch script have Slurm's variables too, but are no rank of a step: their
// steps' ids are the largest numbers.
bool in_slurm_step(const Variables& variables) {
  const auto step = variables("SLURM_STEP_ID");
  return variables("SLURM_PROCID") && step && step->size() < 10;
}

}  // namespace

LaunchEnvironment read_launch_environment(const Variables& variables) {
  LaunchEnvironment at;
  if (variables("SAUROPOD_RANK") || variables("SAUROPOD_WORLD_SIZE"))
    at = from_own_launcher(variables);
  else if (variables("RANK") || variables("WORLD_SIZE"))
    at = from_torchrun(variables);
  // Before Slurm: mpirun inside an allocation starts its daemons as Slurm tasks, whose numbers are not the
  // ranks.
  else if (variables("OMPI_COMM_WORLD_RANK"))
    at = from_openmpi(variables);
  else if (in_slurm_step(variables))
    at = from_slurm(variables);
  if (at.size == 1) at.local_rank = 0, at.local_size = 1;
  if (at.host.empty()) at.host = own_name();
  at.recorder_path = variables("SAUROPOD_FLIGHT_RECORDER").value_or("");
  return at;
}

LaunchEnvironment read_launch_environment() { return read_launch_environment(config::launch_variable); }

// ---- Slurm's lists of hosts: prefix[ranges]middle[ranges]suffix, separated by commas ----------------------

namespace {

class HostList {
 public:
  explicit HostList(std::string_view text) : text_(text) {}

  std::vector<std::string> read() {
    std::vector<std::string> hosts;
    for (;;) {
      for (std::string& host : read_name()) hosts.push_back(std::move(host));
      if (at_ == text_.size()) return hosts;
      ++at_;  // a comma
    }
  }

 private:
  [[noreturn]] void wrong() const {
    base::fail_usage("Slurm's list of hosts can't be read at character {}: {}", at_ + 1, text_);
  }

  std::vector<std::string> read_name() {
    std::vector<std::string> names = {""};
    const size_t begin = at_;
    while (at_ < text_.size() && text_[at_] != ',') {
      if (text_[at_] == ']') wrong();
      if (text_[at_] != '[') {
        for (std::string& name : names) name += text_[at_];
        ++at_;
        continue;
      }
      ++at_;
      const auto numbers = read_ranges();
      if (names.size() * numbers.size() > 100000) wrong();
      std::vector<std::string> longer;
      for (const std::string& name : names)
        for (const std::string& number : numbers) longer.push_back(name + number);
      names = std::move(longer);
    }
    if (at_ == begin) wrong();
    return names;
  }

  // After "[": "1-3,07" up to and with "]".
  std::vector<std::string> read_ranges() {
    std::vector<std::string> numbers;
    for (;;) {
      const std::string_view first = read_digits();
      std::string_view last = first;
      if (peek() == '-') {
        ++at_;
        last = read_digits();
      }
      const int64_t from = value(first), to = value(last);
      if (to < from || to - from >= 100000) wrong();
      for (int64_t i = from; i <= to; ++i) {  // as wide as the first: 08, 09, 10
        std::string number = std::to_string(i);
        if (number.size() < first.size()) number.insert(0, first.size() - number.size(), '0');
        numbers.push_back(std::move(number));
      }
      const char next = peek();
      if (next != ',' && next != ']') wrong();
      ++at_;
      if (next == ']') return numbers;
    }
  }

  std::string_view read_digits() {
    const size_t begin = at_;
    while (peek() >= '0' && peek() <= '9') ++at_;
    if (at_ == begin || at_ - begin > 18) wrong();
    return text_.substr(begin, at_ - begin);
  }

  static int64_t value(std::string_view digits) {
    int64_t number = 0;
    std::from_chars(digits.data(), digits.data() + digits.size(), number);
    return number;
  }

  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

std::vector<std::string> expand_slurm_hosts(std::string_view list) { return HostList(list).read(); }

}  // namespace sauropod::comm
