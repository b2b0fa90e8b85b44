#include "comm/world.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "comm/world_state.h"

namespace sauropod::comm {

void CommunicationOptions::declare(config::Section& section) {
  section.option("backend", backend,
                 {.help = "How ranks reach each other; auto: nccl for train.device = cuda, gloo otherwise",
                  .choices = {"auto", "gloo", "nccl"}});
  section.duration("timeout", timeout,
                   {.help = "How long a rank waits for the others in a collective before it gives up", .min = 1});
  section.duration("startup_timeout", startup_timeout,
                   {.help = "How long ranks wait for each other when they start, and when groups are made",
                    .min = 1});
  section.duration("storage_timeout", storage_timeout,
                   {.help = "How long ranks wait for each other while checkpoints are read and written",
                    .min = 1});
  section.option("interface", interface,
                 {.help = "The network interface between hosts (eth0); empty: the one that reaches rank 0"});
  section.option("shared_memory", shared_memory,
                 {.help = "Whether ranks of one host use shared memory instead of the network"});
}

std::unique_ptr<World> World::start(const LaunchEnvironment& environment,
                                    const CommunicationOptions& options, const StartOptions& start) {
  auto state = std::make_shared<State>();
  state->environment = environment;
  state->options = options;
  if (environment.size > 1)
    base::fail("{} started {} ranks, and this build has no backend for more than one", environment.source,
               environment.size);
  state->places = {{.host = environment.host, .node = 0}};
  return std::unique_ptr<World>(new World(std::move(state)));
}

std::unique_ptr<World> World::fake(int rank, int size, int node_size) {
  SAUROPOD_CHECK(rank >= 0 && rank < size && node_size > 0);
  auto state = std::make_shared<State>();
  state->environment = {.source = "fake",
                        .rank = rank,
                        .size = size,
                        .local_rank = rank % node_size,
                        .local_size = std::min(node_size, size - rank / node_size * node_size),
                        .host = fmt::format("node-{}", rank / node_size)};
  state->backend = "fake";
  for (int i = 0; i < size; ++i)
    state->places.push_back({.host = fmt::format("node-{}", i / node_size), .node = i / node_size});
  state->fake_log = std::make_shared<FakeLog>();
  return std::unique_ptr<World>(new World(std::move(state)));
}

World::World(std::shared_ptr<State> state) : state_(std::move(state)) {}

World::~World() = default;

int World::rank() const { return state_->environment.rank; }
int World::size() const { return state_->environment.size; }
int World::local_rank() const { return state_->environment.local_rank; }
int World::local_size() const { return state_->environment.local_size; }
const std::string& World::host() const { return state_->environment.host; }
std::string_view World::backend() const { return state_->backend; }
const std::vector<Place>& World::places() const { return state_->places; }
const CommunicationOptions& World::options() const { return state_->options; }

std::string World::store_address() const {
  if (size() == 1 || state_->fake_log) return "";
  return fmt::format("{}:{}", state_->environment.store_host, state_->environment.store_port);
}

std::unique_ptr<Communicator> World::make_group(const std::string& name, std::vector<int> ranks,
                                                std::optional<std::chrono::milliseconds> timeout) {
  const auto self = std::find(ranks.begin(), ranks.end(), rank());
  SAUROPOD_CHECK(self != ranks.end(), "rank {} is not in the group '{}' that it makes", rank(), name);
  const int place = static_cast<int>(self - ranks.begin());
  if (state_->fake_log) return make_fake(name, place, std::move(ranks), state_->fake_log);
  return make_single(name, rank(), timeout.value_or(state_->options.timeout));
}

void World::report_failure(const std::string&) noexcept {}

std::vector<FakeCall> World::fake_calls() const {
  SAUROPOD_CHECK(state_->fake_log, "the calls of a world that isn't fake");
  std::lock_guard lock(state_->fake_log->mutex);
  return state_->fake_log->calls;
}

}  // namespace sauropod::comm
