#include "cluster/launch.h"

#include <netdb.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>

#include "base/error.h"
#include "cluster/attempt.h"
#include "comm/store.h"
#include "config/environment.h"
#include "telemetry/log.h"

namespace sauropod::cluster {
namespace {

using namespace std::chrono_literals;

std::string own_name() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 && name[0] ? name : "localhost";
}

// The address from which this machine reaches a host; nothing when the host's name means nothing here.
std::optional<std::string> address_towards(const std::string& host) {
  const std::string name = host.substr(host.find('@') == std::string::npos ? 0 : host.find('@') + 1);
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_DGRAM;
  if (getaddrinfo(name.c_str(), "9", &hints, &found) != 0) return std::nullopt;
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> list(found, freeaddrinfo);
  const Descriptor descriptor(socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage own{};
  socklen_t length = sizeof(own);
  char text[NI_MAXHOST];
  // Connecting such a socket sends nothing.
  if (!descriptor || ::connect(descriptor.number(), found->ai_addr, found->ai_addrlen) != 0 ||
      getsockname(descriptor.number(), reinterpret_cast<sockaddr*>(&own), &length) != 0 ||
      getnameinfo(reinterpret_cast<sockaddr*>(&own), length, text, sizeof(text), nullptr, 0, NI_NUMERICHOST) != 0)
    return std::nullopt;
  return text;
}

Plan make_plan(const LaunchOptions& options) {
  Plan plan{.options = options};
  if (!options.hosts.empty() && !options.host_file.empty())
    base::fail_usage("--hosts and --hostfile: give one of the two");
  plan.local = options.hosts.empty() && options.host_file.empty();
  if (plan.local) plan.hosts = {{.name = own_name()}};
  else plan.hosts = options.hosts.empty() ? read_host_file(options.host_file) : parse_hosts(options.hosts);
  plan.counts = place_ranks(plan.hosts, options.ranks);
  return plan;
}

std::string store_address(const Plan& plan) {
  if (!plan.options.address.empty()) return plan.options.address;
  if (plan.local) return "127.0.0.1";
  for (const Host& host : plan.hosts)
    if (host.name != "localhost" && host.name != own_name())
      if (auto address = address_towards(host.name)) return *address;
  return own_name();
}

// True when a signal asks for the end meanwhile.
bool interrupted(Signals& signals, std::chrono::milliseconds pause) {
  for (const auto end = std::chrono::steady_clock::now() + pause;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
    if (left <= 0ms) return false;
    pollfd entry{.fd = signals.descriptor(), .events = POLLIN, .revents = 0};
    poll(&entry, 1, static_cast<int>(left.count()));
    while (const auto signal = signals.next())
      if (*signal != SIGWINCH) return true;
  }
}

}  // namespace

int launch(const LaunchOptions& options) {
  hold_standard_descriptors();
  Plan plan = make_plan(options);
  const int ranks = std::accumulate(plan.counts.begin(), plan.counts.end(), 0);
  Signals signals({SIGINT, SIGTERM, SIGHUP, SIGWINCH});
  std::unique_ptr<comm::StoreServer> store;
  if (ranks > 1) {
    store = std::make_unique<comm::StoreServer>();
    plan.store = fmt::format("{}:{}", store_address(plan), store->port());
  }
  telemetry::Screen& screen = telemetry::Screen::standard_error();
  const bool bar = screen.device().terminal && config::progress_style() == config::ProgressStyle::automatic;
  Output output(ranks, options.log_folder, screen, bar, isatty(STDOUT_FILENO) == 0);
  log::debug("{} ranks on {} hosts, store at {}", ranks, plan.hosts.size(), plan.store);

  for (int number = 0;; ++number) {
    output.begin(number);
    Outcome outcome{.code = static_cast<int>(base::Exit::failed), .transient = true};
    try {
      outcome = Attempt(plan, number, output, signals).run();
    } catch (const base::Error& error) {
      // A host that answered before may come back.
      if (number == 0 || number >= options.max_restarts || error.exit_code() == base::Exit::usage) throw;
      log::error("{}", error.what());
    }
    if (outcome.code == 0 || outcome.stopped || !outcome.transient || number >= options.max_restarts)
      return outcome.code;
    const auto pause = std::min<std::chrono::seconds>(1s * (1 << std::min(number, 6)), 60s);
    log::warn("starting all ranks again in {} s, restart {} of {}{}", pause.count(), number + 1,
              options.max_restarts,
              !options.command.empty() && options.command.front() == "train"
                  ? ": with --resume, from the newest intact checkpoint"
                  : "");
    if (interrupted(signals, pause)) return outcome.code;
  }
}

}  // namespace sauropod::cluster
