#include "cluster/attempt.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <sstream>
#include <utility>

#include "base/error.h"
#include "config/environment.h"
#include "telemetry/log.h"

namespace sauropod::cluster {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;

constexpr auto kConnect = 60s;       // for an agent's greeting
constexpr auto kSilence = 20s;       // of an agent: its host is lost
constexpr auto kSettle = 300ms;      // after the first death, for the news of others
constexpr auto kOwnEnd = 3s;         // for a rank that has failed to say why, and end
constexpr auto kRecords = 3s;        // for the agents' answers
constexpr double kWarn = 0.5;        // of a time-out
constexpr double kLook = 0.8;        // from here on again and again
constexpr auto kLookAgain = 2s;
constexpr auto kRecent = 15s;
constexpr double kHung = 20;         // seconds beyond a time-out after which the ranks should have given up
constexpr auto kEnd = 12s;           // beyond the grace: an agent reports those that don't end earlier

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

// ssh that asks for nothing, and notices by itself when the other side is gone.
const std::vector<std::string> kSsh = {"ssh", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=15",
                                       "-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3"};

// What ranks on other hosts get from this process's environment.
constexpr std::string_view kPassedOn[] = {"SAUROPOD_LOG=", "SAUROPOD_CPU=", "SAUROPOD_PROGRESS=", "NO_COLOR=",
                                          "LC_ALL=", "LC_CTYPE=", "LANG=", "OMP_", "NCCL_", "FI_", "TORCH_"};

bool passed_on(const std::string& entry) {
  return std::any_of(std::begin(kPassedOn), std::end(kPassedOn),
                     [&](std::string_view prefix) { return entry.starts_with(prefix); });
}

std::vector<std::string> rank_environment(const LaunchOptions& options) {
  std::vector<std::string> result, all = config::environment();
  std::copy_if(all.begin(), all.end(), std::back_inserter(result), passed_on);
  for (const std::string& wanted : options.environment) {
    if (wanted.find('=') != std::string::npos) {
      result.push_back(wanted);
      continue;
    }
    for (const std::string& entry : all)
      if (entry.starts_with(wanted + "=")) result.push_back(entry);
  }
  return result;
}

std::vector<std::string> arguments(const LaunchOptions& options, int attempt) {
  std::vector<std::string> result = options.command;
  if (attempt > 0 && !result.empty() && result.front() == "train" &&
      std::find(result.begin(), result.end(), "--resume") == result.end())
    result.push_back("--resume");
  return result;
}

bool this_machine(const std::string& host) {
  char name[256] = {};
  gethostname(name, sizeof(name) - 1);
  return host == "localhost" || host == name;
}

}  // namespace

Attempt::Attempt(const Plan& plan, int number, Output& output, Signals& signals)
    : plan_(plan), number_(number), output_(output), signals_(signals) {
  int first = 0;
  for (size_t i = 0; i < plan_.hosts.size(); ++i) {
    const int count = plan_.counts[i];
    if (count == 0) continue;
    members_.push_back({.first = first, .count = count});
    for (; first < members_.back().first + count; ++first)
      ranks_.push_back({.host = plan_.hosts[i].name});
  }
}

std::string Attempt::rank_name(int rank) const {
  return fmt::format("rank {} ({}, process {})", rank, ranks_[rank].host, ranks_[rank].process);
}

Outcome Attempt::run() {
  connect();
  while (phase_ != Phase::over) {
    wait();
    tick(Clock::now());
  }
  for (Member& member : members_) {
    member.link->say({{"do", "leave"}});
    if (!all_over() || killed_) member.link->close();
  }
  if (phase_ == Phase::over && stop_signal_ == 0 && error_) {
    members_.clear();
    throw *error_;
  }
  return outcome();
}

void Attempt::connect() {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  const std::string there = plan_.options.remote_binary.empty() ? self : plan_.options.remote_binary;
  const std::vector<std::string> given = words_of(plan_.options.ssh);
  for (Member& member : members_) {
    const std::string& host = ranks_[member.first].host;
    const bool here = plan_.local || (given.empty() && this_machine(host));
    member.link = std::make_unique<Link>(host, here ? std::vector<std::string>{} : given.empty() ? kSsh : given,
                                         here ? self : there);
  }
}

void Attempt::start(Member& member) {
  std::vector<std::string> environment = rank_environment(plan_.options);
  environment.push_back(fmt::format("SAUROPOD_WORLD_SIZE={}", ranks_.size()));
  environment.push_back(fmt::format("SAUROPOD_ATTEMPT={}", number_));
  if (!plan_.store.empty()) environment.push_back("SAUROPOD_STORE=" + plan_.store);
  if (!plan_.local) environment.push_back("SAUROPOD_HOST=" + member.link->host());
  member.link->say({{"do", "start"},
                    {"first", member.first},
                    {"count", member.count},
                    {"directory", std::filesystem::current_path().string()},
                    {"program", plan_.options.program},
                    {"arguments", arguments(plan_.options, number_)},
                    {"environment", environment},
                    {"pin", plan_.options.pin},
                    {"columns", output_.columns()},
                    {"remote", member.link->remote()}});
}

void Attempt::wait() {
  std::vector<pollfd> entries = {{.fd = signals_.descriptor(), .events = POLLIN, .revents = 0}};
  for (const Member& member : members_) {
    entries.push_back({.fd = member.link->output(), .events = POLLIN, .revents = 0});
    entries.push_back({.fd = member.link->error(), .events = POLLIN, .revents = 0});
  }
  poll(entries.data(), entries.size(), 100);
  while (const auto signal = signals_.next()) take_signal(*signal);
  for (size_t i = 0; i < members_.size(); ++i) {
    Member& member = members_[i];
    Link& link = *member.link;
    if (entries[2 * i + 2].revents && link.error() >= 0) link.read_error();
    for (const std::string& line : link.take_lines())
      if (member.ready) log::info("{}: {}", link.host(), line);
    if (!entries[2 * i + 1].revents || !link.open()) continue;
    link.read_output();
    try {
      while (const auto message = link.next()) take_message(member, *message);
    } catch (const std::exception& error) {
      log::debug("{}: {}", link.host(), error.what());
      link.close();
    }
    if (!link.open()) lose(member);
  }
}

void Attempt::take_signal(int signal) {
  if (signal == SIGWINCH) {
    if (!members_.empty() && output_.columns() > 0)
      members_.front().link->say({{"do", "columns"}, {"columns", output_.columns()}});
    return;
  }
  const bool again = std::exchange(stop_signal_, signal) != 0;
  if (phase_ == Phase::connecting) {
    phase_ = Phase::over;
  } else if (again && signal == SIGINT) {
    log::warn("Ctrl-C again: killing the ranks");
    killed_ = true;
    end_all(0s);
  } else if (!again) {
    log::warn("{}: the ranks are asked to end; a run of training writes a checkpoint first. Ctrl-C {} kills them",
              signal_name(signal), signal == SIGINT ? "again" : "now");
    for (Member& member : members_) member.link->say({{"do", "signal"}, {"signal", SIGTERM}});
  }
}

void Attempt::take_message(Member& member, const Message& message) {
  const json& fields = message.fields;
  const std::string what = fields.value("say", "");
  const int rank = fields.value("rank", member.first);
  if (rank < member.first || rank >= member.first + member.count) return;
  if (what == "hello") {
    member.ready = true;
  } else if (what == "output") {
    output_.add(rank, fields.at("error"), message.bytes);
  } else if (what == "started") {
    ranks_[rank].process = fields.at("process");
  } else if (what == "ended") {
    take_ending(rank, fields);
  } else if (what == "stopped") {
    if (fields.at("stopped"))
      log::warn("{} is stopped by a signal; the others will wait for it until their time-out", rank_name(rank));
    else
      log::info("{} goes on", rank_name(rank));
  } else if (what == "killing") {
    if (!killed_)
      log::warn("{} did not end within {} s of SIGTERM: killing it", rank_name(rank), plan_.options.grace.count());
  } else if (what == "unkillable") {
    ranks_[rank].unkillable = fields.at("state");
    log::error("{} does not end even by SIGKILL ({}): it waits in the kernel, mostly for a disk or a device that "
               "does not answer",
               rank_name(rank), ranks_[rank].unkillable);
  } else if (what == "records") {
    member.answered = true;
    for (const json& entry : fields.at("records")) {
      comm::RankRecord record = comm::record_from_json(entry.at("record").dump());
      record.dead = entry.at("dead");
      record.end = entry.at("end");
      record.stopped = entry.at("stopped");
      record.silent_seconds = entry.at("silent");
      records_.push_back(std::move(record));
    }
  } else if (what == "beat") {
    take_beat(member, fields);
  } else if (what == "cannot") {
    if (!error_)
      error_ = base::Error(fmt::format("host {}: {}", member.link->host(), fields.at("message").get<std::string>()),
                           static_cast<base::Exit>(fields.at("code").get<int>()));
    end_all(0s);
  }
}

void Attempt::take_ending(int rank, const json& fields) {
  output_.finish(rank);
  ranks_[rank].ending = Ending{.code = fields.at("code"),
                               .signal = fields.at("signal"),
                               .cause = fields.at("cause"),
                               .by_launcher = fields.at("by_launcher")};
  ranks_[rank].order = ++endings_;
  if (!ranks_[rank].ending->good()) fail();
}

// The ranks give up by themselves when a time-out is over, and know less than the launcher does: it looks
// before.
void Attempt::take_beat(Member& member, const json& fields) {
  const double seconds = fields.at("waiting"), timeout = fields.at("timeout");
  member.waiting = timeout > 0 ? seconds / timeout : 0;
  if (phase_ != Phase::running || asked_) return;
  double longest = 0;
  for (const Member& each : members_) longest = std::max(longest, each.waiting);
  if (longest < kWarn) {
    warned_ = false;
  } else if (timeout > 0 && seconds > timeout + kHung) {
    hung_ = true;
    fail();
  } else if (!warned_ || (longest > kLook && Clock::now() > looked_ + kLookAgain)) {
    ask_for_records(Clock::now());
  }
}

void Attempt::lose(Member& member) {
  const bool expected = std::all_of(ranks_.begin() + member.first, ranks_.begin() + member.first + member.count,
                                    [](const RankFate& fate) { return fate.ending.has_value(); });
  const std::string trouble = member.link->trouble();
  if (phase_ == Phase::connecting) {
    error_ = base::Error(trouble);
    phase_ = Phase::over;
    return;
  }
  if (expected) return;
  log::error("{}", trouble);
  for (int rank = member.first; rank < member.first + member.count; ++rank)
    if (!ranks_[rank].ending) ranks_[rank].host_lost = true;
  fail();
}

bool Attempt::all_over() const {
  return std::all_of(ranks_.begin(), ranks_.end(), [](const RankFate& fate) { return fate.over(); });
}

void Attempt::tick(Clock::time_point now) {
  for (Member& member : members_)
    if (member.link->open() && now > member.link->heard() + (member.ready ? kSilence : kConnect)) lose(member);
  if (phase_ == Phase::over) return;
  if (now >= next_beat_) {
    next_beat_ = now + 1s;
    for (Member& member : members_)
      if (member.ready) member.link->say({{"do", "beat"}});
  }
  if (phase_ == Phase::connecting) {
    if (!std::all_of(members_.begin(), members_.end(), [](const Member& member) { return member.ready; })) return;
    for (Member& member : members_) start(member);
    phase_ = Phase::running;
    return;
  }
  const bool answered =
      std::all_of(members_.begin(), members_.end(),
                  [](const Member& member) { return member.answered || !member.link->open(); });
  if (asked_ && (answered || now > *asked_ + kRecords)) take_records();
  if (phase_ == Phase::gathering && !asked_ && now > *failed_ + kSettle) ask_for_records(now);
  // Ranks that have not been started yet count as over only once the end is on its way.
  const bool started =
      std::all_of(ranks_.begin(), ranks_.end(), [](const RankFate& fate) { return fate.process != 0 || fate.host_lost; });
  if (phase_ == Phase::running && started && all_over()) phase_ = Phase::over;
  if (phase_ == Phase::ending && (all_over() || now > *ending_ + kEnd)) phase_ = Phase::over;
}

void Attempt::ask_for_records(Clock::time_point now) {
  records_.clear();
  asked_ = now;
  for (Member& member : members_) {
    member.answered = false;
    member.link->say({{"do", "records"}});
  }
}

void Attempt::take_records() {
  asked_.reset();
  for (comm::RankRecord& record : records_)
    if (ranks_.at(record.rank).host_lost) record.dead = true, record.end = "its host is lost";
  if (phase_ == Phase::running) {
    waiting_blame_ = find_blame(ranks_, records_);
    looked_ = Clock::now();
    if (!std::exchange(warned_, true)) log::warn("ranks wait for one another: {}", waiting_blame_.sentence);
    return;
  }
  if (phase_ != Phase::gathering) return;
  blame_ = find_blame(ranks_, records_, Clock::now() < looked_ + kRecent ? waiting_blame_ : Blame{});
  // The others have heard of its failure, and may have ended before it.
  const bool failing = blame_.rank && !ranks_[*blame_.rank].over() &&
                       std::any_of(records_.begin(), records_.end(), [&](const comm::RankRecord& record) {
                         return record.rank == *blame_.rank && record.status == comm::Status::failed;
                       });
  if (failing && Clock::now() < *failed_ + kOwnEnd) return;  // and ask again
  const auto left = std::count_if(ranks_.begin(), ranks_.end(), [](const RankFate& fate) { return !fate.over(); });
  if (left > 0 && stop_signal_ == 0)
    log::error("{}{}: ending the {} of {} ranks that are left",
               hung_ ? "a time-out is over and no rank gave up; " : "", headline(ranks_, blame_), left, ranks_.size());
  end_all(plan_.options.grace);
}

void Attempt::fail() {
  if (phase_ != Phase::running) return;
  phase_ = Phase::gathering;
  failed_ = Clock::now();
  asked_.reset();
}

void Attempt::end_all(std::chrono::seconds grace) {
  for (Member& member : members_) member.link->say({{"do", "end"}, {"grace", grace.count()}});
  phase_ = Phase::ending;
  ending_ = Clock::now() + grace;
}

Outcome Attempt::outcome() {
  const bool good = std::all_of(ranks_.begin(), ranks_.end(),
                                [](const RankFate& fate) { return fate.ending && fate.ending->good(); });
  if (good) return {.code = 0, .stopped = stop_signal_ != 0};
  // Ended by what somebody asked for, and by nothing else.
  const bool asked = stop_signal_ != 0 &&
                     std::none_of(ranks_.begin(), ranks_.end(), [](const RankFate& fate) {
                       return fate.host_lost || !fate.unkillable.empty() ||
                              (fate.ending && !fate.ending->good() &&
                               !(fate.ending->by_launcher && fate.ending->signal != 0));
                     });
  if (asked) return {.code = 128 + stop_signal_, .stopped = true};
  const int code = exit_code(ranks_, blame_);
  log::error("{}", report(ranks_, blame_, blame_.rank ? output_.last_words(*blame_.rank) : std::deque<std::string>{}));
  return {.code = code,
          .stopped = stop_signal_ != 0,
          .transient = code != static_cast<int>(base::Exit::usage)};
}

}  // namespace sauropod::cluster
