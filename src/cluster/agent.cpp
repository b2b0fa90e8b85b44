#include "cluster/agent.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/error.h"
#include "base/threads.h"
#include "cluster/memory_kills.h"
#include "cluster/message.h"
#include "cluster/processors.h"
#include "cluster/rank_process.h"
#include "cluster/rank_records.h"

namespace sauropod::cluster {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using nlohmann::json;

constexpr auto kBeat = 1s;
constexpr auto kUnkillable = 5s;       // after SIGKILL
constexpr double kSilence = 5;         // seconds without a rank's sign of life
constexpr auto kLauncherSilence = 60s; // with a network between

struct Rank {
  std::unique_ptr<RankProcess> process;
  bool given_up = false;  // it doesn't end
};

class Agent {
 public:
  Agent() : signals_({SIGCHLD, SIGINT, SIGTERM, SIGHUP}) {
    // Nothing but messages goes to the launcher, whatever a library prints.
    hold_standard_descriptors();
    input_ = Descriptor(fcntl(0, F_DUPFD_CLOEXEC, 3));
    output_ = Descriptor(fcntl(1, F_DUPFD_CLOEXEC, 3));
    dup2(2, 1);
    const Descriptor nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    dup2(nothing.number(), 0);
  }

  int run() {
    char host[256] = {};
    gethostname(host, sizeof(host) - 1);
    connected_ = write_all(output_.number(), std::string(kGreeting) + "\n");
    say({{"say", "hello"}, {"host", host}, {"processors", base::hardware_threads()}});
    while (connected_ && !done_) {
      wait();
      while (const auto signal = signals_.next()) {
        if (*signal == SIGCHLD) look();
        else connected_ = false;  // somebody ends this process
      }
      try {
        while (const auto message = reader_.next()) obey(*message);
      } catch (const base::Error& error) {
        say({{"say", "cannot"}, {"message", error.what()}, {"code", static_cast<int>(error.exit_code())}});
      }
      const auto now = Clock::now();
      escalate(now);
      if (now >= next_beat_) beat(now);
      if (remote_ && now > heard_ + kLauncherSilence) connected_ = false;
    }
    kill_all();
    return connected_ ? 0 : 1;
  }

 private:
  void say(const json& fields, std::string_view bytes = {}) {
    if (connected_ && !send(output_.number(), fields, bytes)) connected_ = false;
  }

  void wait() {
    std::vector<pollfd> entries = {{.fd = input_.number(), .events = POLLIN, .revents = 0},
                                   {.fd = signals_.descriptor(), .events = POLLIN, .revents = 0}};
    std::vector<std::pair<RankProcess*, bool>> sides;
    for (auto& [number, rank] : ranks_)
      for (const bool error : {false, true}) {
        const int descriptor = error ? rank.process->error() : rank.process->output();
        if (descriptor < 0) continue;
        entries.push_back({.fd = descriptor, .events = POLLIN, .revents = 0});
        sides.emplace_back(rank.process.get(), error);
      }
    auto until = next_beat_;
    if (kill_at_) until = std::min(until, *kill_at_);
    if (give_up_at_) until = std::min(until, *give_up_at_);
    const auto pause = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
    if (poll(entries.data(), entries.size(), static_cast<int>(std::clamp<int64_t>(pause, 0, 1000))) <= 0) return;
    if (entries[0].revents) {
      heard_ = Clock::now();
      if (!reader_.read_from(input_.number())) connected_ = false;
    }
    for (size_t i = 0; i < sides.size(); ++i)
      if (entries[i + 2].revents) sides[i].first->read(sides[i].second);
  }

  void obey(const Message& message) {
    const json& fields = message.fields;
    const std::string what = fields.value("do", "");
    if (what == "start") start(fields);
    else if (what == "signal") signal_all(fields.at("signal").get<int>());
    else if (what == "end") end_all(std::chrono::seconds(fields.at("grace").get<int64_t>()));
    else if (what == "records") send_records();
    else if (what == "columns") for (auto& [number, rank] : ranks_) rank.process->resize(fields.at("columns"));
    else if (what == "leave") done_ = true;
    // "beat" only shows that the launcher is there
  }

  // The fields are described in docs/launch.md.
  void start(const json& fields) {
    const std::string directory = fields.at("directory");
    if (chdir(directory.c_str()) != 0)
      base::fail_errno("change to the launcher's working directory", directory, errno);
    remote_ = fields.at("remote");
    const std::string program = fields.at("program");
    if (program.find('/') != std::string::npos && access(program.c_str(), X_OK) != 0)
      base::fail_errno("start", program, errno);
    const int first = fields.at("first"), count = fields.at("count");
    const auto before = allowed_processors();
    std::vector<std::vector<int>> processors;
    if (fields.at("pin").get<bool>()) processors = divide_processors(count);
    for (int i = 0; i < count; ++i) {
      const int threads = processors.empty() ? std::max(1, base::hardware_threads() / count)
                                             : static_cast<int>(processors[i].size());
      if (!processors.empty()) allow_processors(processors[i]);
      start_rank(fields, program, first + i, i, threads);
    }
    if (!processors.empty()) allow_processors(before);
  }

  void start_rank(const json& fields, const std::string& program, int number, int local, int threads) {
    std::vector<std::string> changes;
    changes.push_back(fmt::format("OMP_NUM_THREADS={}", threads));  // unless the launcher's says otherwise
    changes.push_back("TORCH_CPP_LOG_LEVEL=ERROR");  // it warns of each connection to a host without a name
    for (const json& entry : fields.at("environment")) changes.push_back(entry);
    changes.push_back(fmt::format("SAUROPOD_RANK={}", number));
    changes.push_back(fmt::format("SAUROPOD_LOCAL_RANK={}", local));
    changes.push_back(fmt::format("SAUROPOD_LOCAL_SIZE={}", fields.at("count").get<int>()));
    changes.push_back("SAUROPOD_FLIGHT_RECORDER=" + records_.path(number));
    changes.push_back(supervisor_variable());
    Command command{.program = "/proc/self/exe",
                    .words = {std::filesystem::read_symlink("/proc/self/exe").string()},
                    .environment = changed_environment(changes)};
    if (!program.empty()) command.words.insert(command.words.end(), {"launch-exec", program});
    for (const json& word : fields.at("arguments")) command.words.push_back(word);
    const int columns = number == 0 ? fields.at("columns").get<int>() : 0;
    const auto print = [this, number](bool error, std::string_view bytes) {
      say({{"say", "output"}, {"rank", number}, {"error", error}}, bytes);
    };
    Rank& rank = ranks_[number];
    rank.process = std::make_unique<RankProcess>(std::move(command), columns, print);
    say({{"say", "started"}, {"rank", number}, {"process", rank.process->process()}});
  }

  void look() {
    for (auto& [number, rank] : ranks_) {
      if (!rank.process->look()) continue;
      const auto& ending = rank.process->ending();
      if (!ending) {
        say({{"say", "stopped"}, {"rank", number}, {"stopped", rank.process->stopped()}});
        continue;
      }
      say({{"say", "ended"},
           {"rank", number},
           {"code", ending->code},
           {"signal", ending->signal},
           {"cause", cause_of(*ending)},
           {"by_launcher", ending->by_launcher}});
    }
  }

  std::string cause_of(const Ending& ending) {
    if (ending.signal != SIGKILL || ending.by_launcher) return "";
    switch (memory_kills_.look()) {
      case MemoryKills::Where::group:
        return "out of memory (the kernel counts one more process killed at its control group's limit)";
      case MemoryKills::Where::machine:
        return "out of memory (the kernel counts one more process killed for it on this host)";
      case MemoryKills::Where::nowhere: break;
    }
    return "";
  }

  void signal_all(int number) {
    for (auto& [rank_number, rank] : ranks_) {
      rank.process->signal(number);
      rank.process->signal(SIGCONT);  // one that is stopped gets it too
    }
  }

  void end_all(std::chrono::seconds grace) {
    if (grace > 0s) signal_all(SIGTERM);
    kill_at_ = std::min(kill_at_.value_or(Clock::time_point::max()), Clock::now() + grace);
  }

  void escalate(Clock::time_point now) {
    if (kill_at_ && now >= *kill_at_) {
      kill_at_.reset();
      for (auto& [number, rank] : ranks_) {
        if (!rank.process->ending()) say({{"say", "killing"}, {"rank", number}});
        rank.process->signal(SIGKILL);
      }
      give_up_at_ = now + kUnkillable;
    }
    if (give_up_at_ && now >= *give_up_at_) {
      give_up_at_.reset();
      for (auto& [number, rank] : ranks_) {
        if (rank.process->ending()) continue;
        rank.given_up = true;
        say({{"say", "unkillable"}, {"rank", number}, {"state", rank.process->state()}});
      }
    }
  }

  void send_records() {
    json list = json::array();
    for (auto& [number, rank] : ranks_)
      if (auto record = read_record(number, rank)) {
        shorten(*record);
        const auto& ending = rank.process->ending();
        // What a record doesn't say of its own process.
        list.push_back({{"record", json::parse(comm::to_json(*record))},
                        {"dead", record->dead},
                        {"end", ending ? describe(*ending) : ""},
                        {"stopped", record->stopped},
                        {"silent", record->silent_seconds}});
      }
    say({{"say", "records"}, {"records", list}});
  }

  std::optional<comm::RankRecord> read_record(int number, Rank& rank) {
    auto record = records_.read(number);
    if (!record) return std::nullopt;
    const auto& ending = rank.process->ending();
    record->dead = ending.has_value();
    record->stopped = rank.process->stopped();
    const double silent = static_cast<double>(comm::unix_nanoseconds() - record->time) * 1e-9;
    if (!record->dead && record->size > 1 && record->status == comm::Status::running && silent > kSilence)
      record->silent_seconds = silent;
    return record;
  }

  void beat(Clock::time_point now) {
    next_beat_ = now + kBeat;
    Waiting longest;
    for (auto& [number, rank] : ranks_) {
      if (rank.process->ending()) continue;
      if (const auto record = records_.read(number))
        if (const Waiting waiting = longest_wait(*record); waiting.fraction() > longest.fraction())
          longest = waiting;
    }
    say({{"say", "beat"}, {"waiting", longest.seconds}, {"timeout", longest.timeout}});
  }

  // Nothing that was started here stays.
  void kill_all() {
    for (auto& [number, rank] : ranks_)
      if (!rank.given_up) rank.process->signal(SIGKILL);
    for (const auto end = Clock::now() + kUnkillable; Clock::now() < end;) {
      bool left = false;
      for (auto& [number, rank] : ranks_) {
        rank.process->look();
        left |= !rank.process->ending() && !rank.given_up;
      }
      if (!left) return;
      pollfd entry{.fd = signals_.descriptor(), .events = POLLIN, .revents = 0};
      poll(&entry, 1, 50);
      while (signals_.next()) {}
    }
  }

  Signals signals_;
  Descriptor input_, output_;
  MessageReader reader_{/*expect_greeting=*/false};
  MemoryKills memory_kills_;
  RankRecords records_;
  std::map<int, Rank> ranks_;
  bool connected_ = true;
  bool done_ = false;
  bool remote_ = false;
  Clock::time_point heard_ = Clock::now();
  Clock::time_point next_beat_ = Clock::now();
  std::optional<Clock::time_point> kill_at_, give_up_at_;
};

}  // namespace

int run_agent() { return Agent().run(); }

}  // namespace sauropod::cluster
