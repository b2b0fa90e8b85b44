#include "comm/world.h"

#include <unistd.h>

#include <algorithm>
#include <exception>
#include <set>
#include <sstream>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "comm/host_group.h"
#include "comm/nccl_group.h"
#include "comm/rendezvous.h"
#include "comm/world_state.h"
#include "telemetry/log.h"

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

namespace {

using namespace std::chrono_literals;

std::string chosen_backend(const CommunicationOptions& options, const std::string& device) {
  const std::string backend = options.backend != "auto" ? options.backend : device == "cuda" ? "nccl" : "gloo";
  if (backend == "nccl" && device != "cuda")
    base::fail_usage("communication.backend = \"nccl\" moves tensors of a GPU, and train.device is {}: use gloo or auto",
                     device);
  if (backend == "nccl" && !has_nccl())
    base::fail_usage("this build has no NCCL, because it was built without CUDA: docs/gpu.md tells how to build with it");
  if (backend == "gloo" && device == "cuda")
    base::fail_usage("communication.backend = \"gloo\" moves tensors of the processor, and train.device is cuda: use nccl or "
                     "auto");
  return backend;
}

}  // namespace

std::unique_ptr<World> World::start(const LaunchEnvironment& environment, const CommunicationOptions& options,
                                    const StartOptions& start) {
  auto state = std::make_shared<State>();
  state->environment = environment;
  state->options = options;
  LaunchEnvironment& here = state->environment;
  state->recorder = FlightRecorder::make(here.recorder_path, here.rank, here.size, here.host);
  if (here.size == 1) {
    state->places = {{.host = here.host, .node = 0}};
    return std::unique_ptr<World>(new World(std::move(state)));
  }
  state->backend = chosen_backend(options, start.device);
  const std::chrono::milliseconds timeout = options.startup_timeout;
  if (here.rank == 0 && !here.store_hosted) state->server = std::make_unique<StoreServer>(here.store_port);
  const std::string address = state->server ? "127.0.0.1" : here.store_host;
  state->store =
      std::make_unique<Store>(address, here.store_port, timeout, fmt::format("sauropod/{}/", here.attempt));
  Meeting meeting =
      meet(*state->store, here, start.description, options.shared_memory && state->backend == "gloo", timeout);
  here.local_rank = meeting.local_rank;
  here.local_size = meeting.local_size;
  state->places = std::move(meeting.places);
  state->shares_memory = std::move(meeting.shares_memory);

  const bool one_node = state->shares_memory.size() == 1;
  if (state->backend == "gloo" && !(one_node && state->shares_memory[0]))
    state->gloo = GlooMesh::connect(*state->store, here.rank, here.size, options.interface, meeting.address, timeout);
  std::vector<Watch::Rank> ranks;
  for (int rank = 0; rank < here.size; ++rank)
    ranks.push_back({.host = state->places[rank].host, .process = meeting.processes[rank]});
  state->watch = std::make_unique<Watch>(
      std::make_unique<Bulletin>(state->store->again(timeout), state->recorder, here.rank, here.size), state->recorder,
      here.rank, std::move(ranks), fmt::format("{}:{}", here.store_host, here.store_port), here.store_hosted ? -1 : 0);
  // Records are there before anybody looks for them.
  if (state->store->add("start/watching", 1) == here.size) state->store->set("start/watched", "1");
  state->store->get("start/watched", timeout);
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

// The store outlives the ranks that need it: whoever serves it waits for the others to leave. And nobody closes a
// connection while others may still read from it.
World::~World() {
  State& state = *state_;
  if (!state.watch || state.watch->failed()) return;
  const bool failing = std::uncaught_exceptions() > 0;
  if (failing && !state.failure_reported) report_failure("an error ended it");
  try {
    if (!failing && !state.failure_reported) {
      state.recorder->set_status(Status::left);
      state.watch->bulletin().publish();
    }
    if (state.store->add("left", 1) == size()) state.store->set("all left", "1");
    if (failing || state.failure_reported) return;
    for (const auto end = std::chrono::steady_clock::now() + (state.server ? 60s : 10s);
         std::chrono::steady_clock::now() < end && !state.watch->failed() && !state.store->has("all left");)
      std::this_thread::sleep_for(20ms);
  } catch (const std::exception& error) {
    log::debug("{}", error.what());
  }
}

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
  State& state = *state_;
  const auto self = std::find(ranks.begin(), ranks.end(), rank());
  SAUROPOD_CHECK(self != ranks.end(), "rank {} is not in the group '{}' that it makes", rank(), name);
  SAUROPOD_CHECK(std::all_of(ranks.begin(), ranks.end(), [&](int r) { return r >= 0 && r < size(); }) &&
                     std::set<int>(ranks.begin(), ranks.end()).size() == ranks.size(),
                 "group '{}' names a rank twice or one that isn't there", name);
  const int place = static_cast<int>(self - ranks.begin());
  if (state.fake_log) return make_fake(name, place, std::move(ranks), state.fake_log);
  const auto limit = timeout.value_or(state.options.timeout);
  if (ranks.size() == 1) return make_single(name, rank(), limit, state.recorder);
  state.watch->check();

  // The first rank numbers the group, makes its memory and tells the others: "number process descriptor".
  const std::string members = fmt::format("{} {}", name, fmt::join(ranks, ","));
  const std::string key = fmt::format("group/{} {}", base::hash128(members), state.generations[members]++);
  const int node = state.places[rank()].node;
  const bool shared = state.shares_memory[node] && std::all_of(ranks.begin(), ranks.end(), [&](int r) {
                        return state.places[r].node == node;
                      });
  const int size = static_cast<int>(ranks.size());
  const std::chrono::milliseconds startup = state.options.startup_timeout;
  std::shared_ptr<SharedMemory> memory;
  int64_t number = 0, process = 0, descriptor = -1;
  if (place == 0) {
    number = state.store->add("groups", 1) - 1;
    if (shared) memory = SharedMemory::make(size);
    state.store->set(key, fmt::format("{} {} {}", number, getpid(), memory ? memory->descriptor() : -1));
  } else {
    std::istringstream(wait_for({ranks[0]}, key, name)) >> number >> process >> descriptor;
    if (shared) memory = SharedMemory::open(static_cast<pid_t>(process), static_cast<int>(descriptor), size);
    if (shared && !memory)
      throw CommunicationError(fmt::format("rank {} cannot open the shared memory of rank {} for group {}; "
                                           "communication.shared_memory = false does without",
                                           rank(), ranks[0], name));
  }
  if (number >= 1 << 16) base::fail("more than 65536 groups of ranks were made in one run");
  // Nobody begins before all are there: a group that a rank never makes is noticed here, and the first rank may close
  // the memory's descriptor.
  if (state.store->add(key + " made", 1) == size) state.store->set(key + " complete", "1");
  wait_for(ranks, key + " complete", name);
  if (memory) memory->close_descriptor();
  if (state.backend == "nccl")
    return make_nccl_group(state_, name, place, std::move(ranks), limit, static_cast<int>(number));
  return make_host_group(state_, name, place, std::move(ranks), limit, static_cast<int>(number), std::move(memory));
}

// A key that ranks write while they make a group. They may end before they do.
std::string World::wait_for(const std::vector<int>& ranks, const std::string& key, const std::string& group) {
  State& state = *state_;
  for (const auto end = std::chrono::steady_clock::now() + state.options.startup_timeout;;) {
    const auto left = end - std::chrono::steady_clock::now();
    if (left <= 0s)
      throw CommunicationError(fmt::format("rank {} waited {} s for rank{} {} to make group {}", rank(),
                                           state.options.startup_timeout.count(), ranks.size() == 1 ? "" : "s",
                                           fmt::join(ranks, ", "), group));
    try {
      return state.store->get(key, std::min(std::chrono::ceil<std::chrono::milliseconds>(left), 500ms));
    } catch (const CommunicationError&) {
      if (!state.store->has(key))  // throws when the store is gone
        for (const int other : ranks)
          if (state.watch->ended(other)) state.watch->lost(other, "its process ended");
      state.watch->check();
    }
  }
}

void World::report_failure(const std::string& message) noexcept {
  try {
    if (!state_->watch || state_->watch->failed()) return;
    state_->failure_reported = true;
    state_->recorder->set_status(Status::failed, message);
    state_->watch->bulletin().publish();
  } catch (const std::exception& error) {
    log::debug("{}", error.what());
  }
}

FlightRecorder& World::recorder() { return *state_->recorder; }

std::vector<FakeCall> World::fake_calls() const {
  SAUROPOD_CHECK(state_->fake_log, "the calls of a world that isn't fake");
  std::lock_guard lock(state_->fake_log->mutex);
  return state_->fake_log->calls;
}

}  // namespace sauropod::comm
