// Which processors each rank of a host gets under --pin.
#pragma once

#include <filesystem>
#include <vector>

namespace sauropod::cluster {

// The processors this thread may run on, cut into `parts` lists of neighbours: threads of a core stay
// together, cores of a socket do as far as they can. What is left over goes to the first ones. Throws
// base::Error (usage) when there are more parts than processors. `system`: where /sys is.
std::vector<std::vector<int>> divide_processors(int parts, const std::filesystem::path& system = "/sys");

// The processors that this thread, and processes it starts, may run on.
std::vector<int> allowed_processors();
void allow_processors(const std::vector<int>& processors);

}  // namespace sauropod::cluster
