#include "base/interrupt.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <climits>
#include <csignal>
#include <cstring>

namespace sauropod::base {
namespace {

// A slot's path changes only while its state is `busy`, and the handler reads only slots that are
// `used`. A thread that wants to change a slot after the handler has begun waits for the end of the
// process instead; sequential consistency makes one of the two see the other.
enum State : int { unused, busy, used };

struct Slot {
  std::atomic<int> state{unused};
  char path[PATH_MAX];
};

std::array<Slot, 256> slots;
std::atomic<bool> ending{false};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

void wait_if_ending() {
  while (ending.load()) ::pause();
}

extern "C" void end_cleanly(int signal_number) {
  ending.store(true);
  for (Slot& slot : slots)
    if (slot.state.load() == used) ::unlink(slot.path);
  ::signal(signal_number, SIG_DFL);
  ::raise(signal_number);  // delivered when this handler returns and unblocks it
}

}  // namespace

void clean_up_on_signals() {
  for (const int signal_number : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction before{};
    ::sigaction(signal_number, nullptr, &before);
    if (before.sa_handler == SIG_IGN) continue;
    struct sigaction action{};
    action.sa_handler = end_cleanly;
    ::sigemptyset(&action.sa_mask);
    ::sigaction(signal_number, &action, nullptr);
  }
}

int remember_temporary(const std::string& path) {
  if (path.size() >= sizeof(Slot::path)) return -1;
  for (size_t i = 0; i < slots.size(); ++i) {
    int expected = unused;
    if (!slots[i].state.compare_exchange_strong(expected, busy)) continue;
    wait_if_ending();
    std::memcpy(slots[i].path, path.c_str(), path.size() + 1);
    slots[i].state.store(used);
    return static_cast<int>(i);
  }
  return -1;
}

void forget_temporary(int slot) {
  if (slot < 0) return;
  slots[static_cast<size_t>(slot)].state.store(busy);
  wait_if_ending();
  slots[static_cast<size_t>(slot)].state.store(unused);
}

}  // namespace sauropod::base
