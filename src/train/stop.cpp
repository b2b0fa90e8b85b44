#include "train/stop.h"

#include <atomic>
#include <csignal>
#include <filesystem>

#include "base/interrupt.h"

namespace sauropod::train {
namespace {

std::atomic<int> received{0};
static_assert(std::atomic<int>::is_always_lock_free);

extern "C" void note_signal(int signal_number) {
  if (received.exchange(signal_number) != 0 && signal_number == SIGINT) {
    std::signal(SIGINT, SIG_DFL);
    std::raise(SIGINT);
  }
}

}  // namespace

StopRequest::StopRequest(std::chrono::seconds max_time, std::string stop_file)
    : max_time_(max_time),
      stop_file_(std::move(stop_file)),
      began_(std::chrono::steady_clock::now()) {
  received = 0;
  for (const int signal_number : {SIGINT, SIGTERM}) {
    struct sigaction action {};
    action.sa_handler = note_signal;
    sigemptyset(&action.sa_mask);
    action.sa_flags = SA_RESTART;
    sigaction(signal_number, &action, nullptr);
  }
}

StopRequest::~StopRequest() { base::clean_up_on_signals(); }

std::string StopRequest::reason() const {
  switch (received.load()) {
    case SIGINT:
      return "SIGINT";
    case SIGTERM:
      return "SIGTERM";
    default:
      break;
  }
  if (max_time_.count() > 0 && std::chrono::steady_clock::now() - began_ >= max_time_)
    return "train.max_time";
  std::error_code error;
  if (!stop_file_.empty() && std::filesystem::exists(stop_file_, error)) return "train.stop_file";
  return "";
}

}  // namespace sauropod::train
