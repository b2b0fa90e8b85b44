#include "comm/bulletin.h"

#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "telemetry/log.h"

namespace sauropod::comm {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kBeat = 1s;
constexpr auto kSilence = 2200ms;  // without a new record: more than two beats

std::string record_key(int rank) { return fmt::format("record/{}", rank); }

}  // namespace

struct Bulletin::State {
  std::unique_ptr<Store> store;
  std::shared_ptr<FlightRecorder> recorder;
  int rank = 0;
  int size = 0;
  std::thread thread;

  std::mutex mutex;  // of what follows
  std::condition_variable changed;
  bool stopping = false;
  bool sample_wanted = false;
  std::string verdict;

  // When the record of each rank was last seen to change.
  struct Seen {
    int64_t time = 0;         // in the record
    Clock::time_point since;  // by our clock
    bool changed = false;     // since it was first seen: a sign of life
  };
  std::mutex seen_mutex;
  std::vector<Seen> seen;

  void publish() {
    recorder->beat();
    store->set(record_key(rank), to_json(recorder->snapshot(true)));
  }

  std::vector<RankRecord> read_all() {
    std::vector<std::string> keys;
    for (int i = 0; i < size; ++i) keys.push_back(record_key(i));
    const auto texts = store->get_all(keys);
    std::vector<RankRecord> records;
    const auto now = Clock::now();
    std::lock_guard lock(seen_mutex);
    for (int i = 0; i < size; ++i) {
      RankRecord record = record_from_json(texts[i]);
      if (i == rank) record = recorder->snapshot(true);
      if (record.time != seen[i].time) seen[i] = {record.time, now, seen[i].time != 0};
      const auto silence = now - seen[i].since;
      if (silence >= kSilence) record.silent_seconds = std::chrono::duration<double>(silence).count();
      records.push_back(std::move(record));
    }
    return records;
  }

  void run() {
    int lost = 0;  // times in a row that the store failed
    for (auto next = Clock::now();;) {
      bool sample;
      {
        std::unique_lock lock(mutex);
        changed.wait_until(lock, next, [&] { return stopping || sample_wanted; });
        if (stopping) return;
        sample = std::exchange(sample_wanted, false);
      }
      try {
        if (sample) read_all();
        if (Clock::now() < next) continue;
        next = Clock::now() + kBeat;
        publish();
        std::string settled = store->get_all({"verdict"}).front();
        std::lock_guard lock(mutex);
        verdict = std::move(settled);
        lost = 0;
      } catch (const base::Error& error) {
        next = Clock::now() + kBeat;
        log::debug("{}", error.what());
        if (++lost == 3) return;  // it doesn't come back
      }
    }
  }
};

Bulletin::Bulletin(std::unique_ptr<Store> store, std::shared_ptr<FlightRecorder> recorder, int rank, int size)
    : state_(std::make_shared<State>()) {
  state_->store = std::move(store);
  state_->recorder = std::move(recorder);
  state_->rank = rank;
  state_->size = size;
  state_->seen.resize(static_cast<size_t>(size));
  state_->publish();
  state_->thread = std::thread([state = state_.get()] { state->run(); });
}

Bulletin::~Bulletin() {
  {
    std::lock_guard lock(state_->mutex);
    state_->stopping = true;
  }
  state_->changed.notify_all();
  state_->thread.join();
  publish();
}

std::string Bulletin::verdict() const {
  std::lock_guard lock(state_->mutex);
  return state_->verdict;
}

void Bulletin::sample() {
  std::lock_guard lock(state_->mutex);
  state_->sample_wanted = true;
  state_->changed.notify_all();
}

std::optional<std::vector<RankRecord>> Bulletin::gather(bool silent) try {
  auto records = state_->read_all();
  // A rank whose record was seen but once may be alive or not: look again later.
  std::optional<Clock::time_point> ripe;
  if (silent) {
    std::lock_guard lock(state_->seen_mutex);
    for (const auto& seen : state_->seen)
      if (!seen.changed && (!ripe || seen.since + kSilence > *ripe)) ripe = seen.since + kSilence;
  }
  if (ripe && *ripe > Clock::now()) {
    std::this_thread::sleep_until(*ripe);
    records = state_->read_all();
  }
  return records;
} catch (const base::Error& error) {
  log::debug("{}", error.what());
  return std::nullopt;
}

std::string Bulletin::settle(const std::string& verdict) try {
  // The key is there from the start, empty.
  const std::string holds = state_->store->compare_set("verdict", "", verdict);
  std::lock_guard lock(state_->mutex);
  state_->verdict = holds;
  return holds;
} catch (const base::Error&) {
  return verdict;
}

void Bulletin::publish() {
  try {
    state_->publish();
  } catch (const base::Error& error) {
    log::debug("{}", error.what());
  }
}

}  // namespace sauropod::comm
