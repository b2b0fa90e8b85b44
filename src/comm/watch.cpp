#include "comm/watch.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/error.h"
#include "comm/operation.h"
#include "comm/verdict.h"

namespace sauropod::comm {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kTick = 100ms;
constexpr auto kOwnWords = 3s;   // for which a lost rank's own account is waited for
constexpr auto kForesight = 3s;  // before a time-out, records are read, to tell later who was silent

double seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

}  // namespace

Watch::Watch(std::unique_ptr<Bulletin> bulletin, std::shared_ptr<FlightRecorder> recorder, int rank,
             std::vector<Rank> ranks, std::string store, int store_rank)
    : bulletin_(std::move(bulletin)),
      recorder_(std::move(recorder)),
      rank_(rank),
      ranks_(std::move(ranks)),
      store_(std::move(store)),
      store_rank_(store_rank),
      thread_([this] { run(); }) {}

Watch::~Watch() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Watch::check() const {
  if (!failed_.load()) return;
  std::lock_guard lock(mutex_);
  refuse();
}

void Watch::refuse() const {
  throw CommunicationError(fmt::format("communication has failed before: {}", verdict_));
}

void Watch::add(std::shared_ptr<Operation> operation, const Communicator& group) {
  std::lock_guard lock(mutex_);
  if (failed_.load()) refuse();
  // Most calls are done long before the next tick; forget them here, so that the list stays short.
  if (watched_.size() >= 64) std::erase_if(watched_, [](const Watched& watched) { return watched.operation->done(); });
  watched_.push_back(
      {std::move(operation), fmt::format("group {} of {} ranks", group.name(), group.size()), group.timeout()});
}

void Watch::lost(int rank, const std::string& detail) {
  std::lock_guard lock(mutex_);
  if (lost_rank_ >= 0) return;
  lost_rank_ = rank;
  lost_detail_ = detail;
  changed_.notify_all();
}

bool Watch::ended(int rank) const { return ranks_[rank].process && ranks_[rank].process->ended(); }

int Watch::on_failure(std::function<void()> interrupt) {
  std::lock_guard lock(mutex_);
  listeners_[next_listener_] = std::move(interrupt);
  return next_listener_++;
}

void Watch::remove(int listener) {
  std::lock_guard calling(calling_);
  std::lock_guard lock(mutex_);
  listeners_.erase(listener);
}

void Watch::run() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    changed_.wait_for(lock, kTick, [&] { return stopping_ || (lost_rank_ >= 0 && !failed_.load()); });
    if (stopping_ || failed_.load()) {
      if (failed_.load() && !stopping_) changed_.wait(lock, [&] { return stopping_; });
      break;
    }
    for (const Watched& watched : watched_)
      if (watched.operation->poll && !watched.operation->done() && watched.operation->poll())
        watched.operation->finish();
    std::erase_if(watched_, [](const Watched& watched) { return watched.operation->done(); });
    bool late = lost_rank_ >= 0, sample = false;
    for (Watched& watched : watched_) {
      const auto age = watched.operation->age();
      if (!age) continue;
      late |= *age > watched.timeout;
      const auto foresight = std::max<Clock::duration>(watched.timeout - kForesight, watched.timeout / 2);
      if (*age > foresight && !std::exchange(watched.sampled, true)) sample = true;
    }
    const int lost_rank = lost_rank_;
    const std::string detail = lost_detail_;
    lock.unlock();
    if (sample) bulletin_->sample();
    std::string verdict = bulletin_->verdict();
    if (verdict.empty() && late) verdict = explain(lost_rank, detail);
    if (!verdict.empty()) fail(verdict);
    lock.lock();
  }
}

std::string Watch::explain(int lost_rank, const std::string& detail) {
  // One rank's finding is enough: let those before this one be first, for large worlds' sake.
  std::this_thread::sleep_for(std::min<std::chrono::milliseconds>(rank_ * 5ms, 1000ms));
  // A rank that fails drops its groups before it comes to say why: give one that is still there the time. Whether ranks
  // have ended is looked at before their records, which hold all that an ended one will ever say.
  std::vector<bool> dead(ranks_.size());
  std::optional<std::vector<RankRecord>> records;
  for (const auto end = Clock::now() + kOwnWords;; std::this_thread::sleep_for(20ms)) {
    for (size_t rank = 0; rank < ranks_.size(); ++rank) dead[rank] = ended(static_cast<int>(rank));
    records = bulletin_->gather(lost_rank < 0);
    if (const std::string settled = bulletin_->verdict(); !settled.empty()) return settled;
    if (!records || lost_rank < 0 || dead[lost_rank] || (*records)[lost_rank].status != Status::running ||
        Clock::now() > end)
      break;
  }
  if (!records) {
    const std::string who =
        store_rank_ >= 0 ? fmt::format("rank {} ({}), which serves it,", store_rank_, ranks_[store_rank_].host)
                         : "the launcher, which serves it,";
    return fmt::format("the store at {} does not answer: {} has ended, is stopped or is cut off{}", store_, who,
                       lost_rank >= 0 ? fmt::format(" (rank {}: {})", lost_rank, detail) : "");
  }
  for (RankRecord& record : *records) {
    const bool lost = record.rank == lost_rank;
    record.dead = dead[record.rank] || lost;
    if (lost) record.end = detail;
  }
  return bulletin_->settle(judge(*records).sentence);
}

void Watch::fail(const std::string& verdict) {
  std::vector<Watched> watched;
  {
    std::lock_guard lock(mutex_);
    verdict_ = verdict;
    failed_.store(true);
    watched.swap(watched_);
  }
  recorder_->set_status(Status::gave_up, verdict);
  bulletin_->publish();
  for (const Watched& each : watched) {
    Operation& operation = *each.operation;
    const auto age = operation.age();
    operation.fail(std::make_exception_ptr(CommunicationError(
        fmt::format("{} '{}' #{} of {} failed{}: {}", name_of(operation.kind), operation.label, operation.number,
                    each.where, age ? fmt::format(" after {:.1f} s", seconds(*age)) : "", verdict))));
    if (operation.cancel) operation.cancel();
  }
  std::lock_guard calling(calling_);
  std::map<int, std::function<void()>> listeners;
  {
    std::lock_guard lock(mutex_);
    listeners = listeners_;
  }
  for (const auto& [number, interrupt] : listeners) interrupt();
}

}  // namespace sauropod::comm
