// What a World and its groups share. Only for files of this room.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/in_process.h"
#include "comm/world.h"

namespace sauropod::comm {

struct World::State {
  LaunchEnvironment environment;
  CommunicationOptions options;
  std::string_view backend = "single";
  std::vector<Place> places;          // by rank
  std::shared_ptr<FakeLog> fake_log;  // of a fake world
};

}  // namespace sauropod::comm
