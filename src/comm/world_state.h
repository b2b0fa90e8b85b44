// What a World and its groups share. Only for files of this room.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "comm/flight_recorder.h"
#include "comm/gloo.h"
#include "comm/in_process.h"
#include "comm/store.h"
#include "comm/watch.h"
#include "comm/world.h"

namespace sauropod::comm {

struct World::State {
  LaunchEnvironment environment;
  CommunicationOptions options;
  std::string backend = "single";
  std::vector<Place> places;          // by rank
  std::shared_ptr<FakeLog> fake_log;  // of a fake world
  std::shared_ptr<FlightRecorder> recorder;

  // With more than one rank:
  std::unique_ptr<StoreServer> server;  // when this rank serves the store
  std::unique_ptr<Store> store;
  std::vector<bool> shares_memory;      // by node
  std::shared_ptr<GlooMesh> gloo;       // when some ranks don't share memory
  std::unique_ptr<Watch> watch;
  bool failure_reported = false;
  std::map<std::string, int> generations;  // how often groups of a name and ranks were made

  ~State() {
    // A mesh whose peers may hang can't be taken down.
    if (watch && watch->failed()) GlooMesh::abandon(std::move(gloo));
  }
};

}  // namespace sauropod::comm
