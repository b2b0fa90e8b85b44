// Records as JSON, for the store. Short names: each rank writes one a second.
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "comm/flight_recorder.h"

namespace sauropod::comm {
namespace {

using nlohmann::json;

// Ranks as runs [first, step, count]: groups of a mesh are one run, however large.
json runs_of(const std::vector<int>& ranks) {
  json runs = json::array();
  for (size_t i = 0; i < ranks.size();) {
    const int step = i + 1 < ranks.size() ? ranks[i + 1] - ranks[i] : 1;
    size_t end = i + 1;
    while (end < ranks.size() && ranks[end] - ranks[end - 1] == step) ++end;
    runs.push_back({ranks[i], step, end - i});
    i = end;
  }
  return runs;
}

std::vector<int> ranks_of(const json& runs) {
  std::vector<int> ranks;
  for (const json& run : runs)
    for (int i = 0; i < run.at(2).get<int>(); ++i) ranks.push_back(run.at(0).get<int>() + i * run.at(1).get<int>());
  return ranks;
}

json counts(const std::map<int, uint64_t>& numbers) {
  json list = json::array();
  for (const auto& [peer, count] : numbers) list.push_back({peer, count});
  return list;
}

std::map<int, uint64_t> counts_from(const json& list) {
  std::map<int, uint64_t> numbers;
  for (const json& pair : list) numbers[pair.at(0).get<int>()] = pair.at(1).get<uint64_t>();
  return numbers;
}

}  // namespace

std::string to_json(const RankRecord& record) {
  json groups = json::array();
  for (const RecordedGroup& group : record.groups) {
    json calls = json::array();
    for (const RecordedCall& call : group.calls) {
      json transfers = json::array();
      for (const auto& transfer : call.transfers)
        transfers.push_back({transfer.peer, transfer.receive ? 1 : 0, transfer.number});
      calls.push_back({call.order, call.number, static_cast<int>(call.kind), call.label, call.bytes, call.issued,
                       call.started, call.blocked, call.finished, transfers});
    }
    groups.push_back({{"name", group.name},
                      {"members", runs_of(group.members)},
                      {"self", group.self},
                      {"collectives", group.collectives},
                      {"exchanges", group.exchanges},
                      {"timeout", group.timeout.count()},
                      {"sent", counts(group.sent)},
                      {"received", counts(group.received)},
                      {"calls", calls}});
  }
  return json{{"rank", record.rank},
              {"size", record.size},
              {"host", record.host},
              {"process", record.process},
              {"status", static_cast<int>(record.status)},
              {"failure", record.failure},
              {"time", record.time},
              {"groups", groups}}
      .dump(-1, ' ', false, json::error_handler_t::replace);
}

RankRecord record_from_json(const std::string& text) try {
  const json from = json::parse(text);
  RankRecord record;
  record.rank = from.at("rank").get<int>();
  record.size = from.at("size").get<int>();
  record.host = from.at("host").get<std::string>();
  record.process = from.at("process").get<int>();
  record.status = static_cast<Status>(from.at("status").get<int>());
  record.failure = from.at("failure").get<std::string>();
  record.time = from.at("time").get<int64_t>();
  for (const json& entry : from.at("groups")) {
    RecordedGroup group;
    group.name = entry.at("name").get<std::string>();
    group.members = ranks_of(entry.at("members"));
    group.self = entry.at("self").get<int>();
    group.collectives = entry.at("collectives").get<uint64_t>();
    group.exchanges = entry.at("exchanges").get<uint64_t>();
    group.timeout = std::chrono::milliseconds(entry.at("timeout").get<int64_t>());
    group.sent = counts_from(entry.at("sent"));
    group.received = counts_from(entry.at("received"));
    for (const json& c : entry.at("calls")) {
      RecordedCall call;
      call.order = c.at(0).get<uint64_t>();
      call.number = c.at(1).get<uint64_t>();
      call.kind = static_cast<Kind>(c.at(2).get<int>());
      call.label = c.at(3).get<std::string>();
      call.bytes = c.at(4).get<int64_t>();
      call.issued = c.at(5).get<int64_t>();
      call.started = c.at(6).get<int64_t>();
      call.blocked = c.at(7).get<int64_t>();
      call.finished = c.at(8).get<int64_t>();
      for (const json& t : c.at(9))
        call.transfers.push_back(
            {.peer = t.at(0).get<int>(), .receive = t.at(1).get<int>() != 0, .number = t.at(2).get<uint64_t>()});
      group.calls.push_back(std::move(call));
    }
    record.groups.push_back(std::move(group));
  }
  return record;
} catch (const json::exception& error) {
  base::fail("not a rank's record: {}", error.what());
}

}  // namespace sauropod::comm
