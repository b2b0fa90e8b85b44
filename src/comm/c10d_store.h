// The c10d store inside a Store, for the backends that c10d makes. Only for files of this room, and only those
// that include c10d's headers anyway: they take seconds to read.
#pragma once

#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "comm/store.h"

namespace sauropod::comm {

struct Store::Client {
  c10::intrusive_ptr<c10d::TCPStore> store;
};

}  // namespace sauropod::comm
