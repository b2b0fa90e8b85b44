#include "comm/verdict.h"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

namespace sauropod::comm {
namespace {

// Rank `waiter` is blocked in `call` of `group` for `target`.
struct Wait {
  const RankRecord* waiter;
  const RecordedGroup* group;
  const RecordedCall* call;
  int target;
};

using Records = std::map<int, const RankRecord*>;

bool waits_at_all(const RankRecord& record) {
  if (record.status == Status::gave_up) return true;  // its record still says for whom, even if it has ended
  return record.present && record.status == Status::running && !record.dead;
}

bool suspect(const RankRecord& record) {
  return !record.present || record.dead || record.stopped || record.silent_seconds > 0 ||
         record.status == Status::left || record.status == Status::failed;
}

// The group as another of its members has it.
const RecordedGroup* same_group(const RankRecord& record, const RecordedGroup& group) {
  for (const RecordedGroup& other : record.groups)
    if (other.name == group.name && other.members == group.members) return &other;
  return nullptr;
}

std::vector<int> targets_of(const Records& records, const RecordedGroup& group, const RecordedCall& call) {
  std::vector<int> missing, suspects;
  const auto consider = [&](int rank, bool arrived) {
    const auto at = records.find(rank);
    if (!arrived) missing.push_back(rank);
    else if (at != records.end() && suspect(*at->second)) suspects.push_back(rank);
  };
  const auto other = [&](int place) -> const RecordedGroup* {
    const auto at = records.find(group.members[place]);
    return at == records.end() ? nullptr : same_group(*at->second, group);
  };
  if (call.kind == Kind::exchange) {
    for (const RecordedTransfer& transfer : call.transfers) {
      const RecordedGroup* theirs = other(transfer.peer);
      const auto& posted = transfer.receive ? &RecordedGroup::sent : &RecordedGroup::received;
      uint64_t count = 0;
      if (theirs)
        if (const auto at = (theirs->*posted).find(group.self); at != (theirs->*posted).end()) count = at->second;
      consider(group.members[transfer.peer], count >= transfer.number);
    }
  } else {
    for (int place = 0; place < static_cast<int>(group.members.size()); ++place) {
      if (place == group.self) continue;
      const RecordedGroup* theirs = other(place);
      consider(group.members[place], theirs && theirs->collectives >= call.number);
    }
  }
  return missing.empty() ? suspects : missing;
}

std::string named(const RecordedGroup& group, const RecordedCall& call) {
  return fmt::format("{} '{}' #{} of group {}", name_of(call.kind), call.label, call.number, group.name);
}

std::string named(const RankRecord& record) {
  return record.host.empty() ? fmt::format("rank {}", record.rank)
                             : fmt::format("rank {} ({})", record.rank, record.host);
}

std::string list(const std::set<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  size_t shown = 0;
  for (const int rank : ranks) {
    if (shown == 8) return text + fmt::format(" and {} more", ranks.size() - shown);
    text += (shown++ ? ", " : "") + std::to_string(rank);
  }
  return text;
}

double seconds_in(const Wait& wait) {
  return static_cast<double>(std::max<int64_t>(wait.waiter->time - wait.call->blocked, 0)) * 1e-9;
}

// Smaller is worse.
int severity(const RankRecord& record) {
  if (record.status == Status::failed) return 0;
  if (record.dead && record.status != Status::gave_up) return 1;
  if (!record.present) return 2;
  if (record.stopped) return 3;
  if (record.silent_seconds > 0) return 4;
  if (record.status == Status::left) return 5;
  return 6;
}

std::string condition(const RankRecord& record, bool call_missing) {
  switch (severity(record)) {
    case 0: return "failed: " + record.failure;
    case 1: return record.end.empty() ? "has ended" : "has ended: " + record.end;
    case 2: return "never started";
    case 3: return "is stopped";
    case 4:
      return fmt::format("is stopped or cut off: no sign of life for {:.1f} s", record.silent_seconds);
    case 5: return "has left the run";
    default: return call_missing ? "is late" : "is slow";
  }
}

// Its last call in the group, as far as anybody knows: its record may be a second old, but a collective that another
// rank has finished is one that it made.
std::string last_call(const RankRecord& record, const RecordedGroup& group, const Records& records) {
  const RecordedGroup* own = same_group(record, group);
  const RecordedGroup* owner = own;
  const RecordedCall* last = own && !own->calls.empty() ? &own->calls.back() : nullptr;
  uint64_t proven = own ? own->collectives : 0;
  for (const auto& [rank, other] : records)
    if (const RecordedGroup* theirs = same_group(*other, group))
      for (const RecordedCall& call : theirs->calls)
        if (call.finished && call.kind != Kind::exchange && call.kind != Kind::broadcast && call.number > proven)
          proven = call.number, last = &call, owner = theirs;
  if (!last && !own) return fmt::format("it has not made group {}", group.name);
  if (!last) return fmt::format("it has made no call in group {}", group.name);
  return fmt::format("its last known call there was {}", named(*owner, *last));
}

Verdict blame(const RankRecord& record, const std::vector<Wait>& waits, const Records& records) {
  // What others wait for it in: the one they have waited longest in.
  const Wait* longest = nullptr;
  std::set<int> direct, all;
  for (const Wait& wait : waits) {
    all.insert(wait.waiter->rank);
    if (wait.target != record.rank) continue;
    direct.insert(wait.waiter->rank);
    if (!longest || wait.call->blocked < longest->call->blocked) longest = &wait;
  }
  all.erase(record.rank);
  if (!longest) return {record.rank, fmt::format("{} {}", named(record), condition(record, false))};
  const RecordedGroup* own = same_group(record, *longest->group);
  const bool missing = !own || own->collectives < longest->call->number || longest->call->kind == Kind::exchange;
  std::string more;
  if (all.size() > direct.size())
    more = fmt::format("; {} other{} wait{} for these", all.size() - direct.size(),
                       all.size() - direct.size() == 1 ? "" : "s", all.size() - direct.size() == 1 ? "s" : "");
  return {record.rank,
          fmt::format("{} {}; {}; {} {} for it in {} for {:.1f} s{}", named(record), condition(record, missing),
                      last_call(record, *longest->group, records), list(direct), direct.size() == 1 ? "waits" : "wait",
                      named(*longest->group, *longest->call), seconds_in(*longest), more)};
}

// A collective that two ranks made under the same number with different names.
std::optional<Verdict> find_mismatch(const std::vector<Wait>& blocked, const Records& records) {
  for (const Wait& wait : blocked) {
    if (wait.call->kind == Kind::exchange) continue;
    for (const int member : wait.group->members) {
      const auto at = records.find(member);
      const RecordedGroup* theirs = at == records.end() ? nullptr : same_group(*at->second, *wait.group);
      if (!theirs) continue;
      for (const RecordedCall& call : theirs->calls)
        if (call.kind != Kind::exchange && call.number == wait.call->number &&
            (call.kind != wait.call->kind || call.label != wait.call->label))
          return Verdict{std::nullopt,
                         fmt::format("{} made {} where {} made {}: ranks must make the same calls in the same order",
                                     named(*at->second), named(*theirs, call), named(*wait.waiter),
                                     named(*wait.group, *wait.call))};
    }
  }
  return std::nullopt;
}

Verdict describe_circle(const std::vector<Wait>& waits) {
  // Follow the waiting until a rank comes again.
  std::map<int, const Wait*> from;
  for (const Wait& wait : waits) from.try_emplace(wait.waiter->rank, &wait);
  std::vector<const Wait*> path;
  std::set<int> seen;
  const Wait* at = &waits.front();
  while (at && seen.insert(at->waiter->rank).second) {
    path.push_back(at);
    const auto next = from.find(at->target);
    at = next == from.end() ? nullptr : next->second;
  }
  std::string text = "ranks wait for each other";
  for (const Wait* wait : path)
    text += fmt::format("{} {} for rank {} in {}", wait == path.front() ? ":" : ";", named(*wait->waiter), wait->target,
                        named(*wait->group, *wait->call));
  return {std::nullopt, text};
}

}  // namespace

Verdict judge(const std::vector<RankRecord>& list_of_records) {
  Records records;
  std::vector<RankRecord> unknown;  // ranks that are waited for and of which nothing is known
  for (const RankRecord& record : list_of_records) records[record.rank] = &record;

  std::vector<Wait> waits;
  std::vector<Wait> stuck;  // blocked, though all made the call and none is suspect: for nobody (-1)
  for (const auto& [rank, record] : records) {
    if (!waits_at_all(*record)) continue;
    for (const RecordedGroup& group : record->groups)
      for (const RecordedCall& call : group.calls) {
        if (!call.blocked || call.finished) continue;
        const auto targets = targets_of(records, group, call);
        for (const int target : targets) waits.push_back({record, &group, &call, target});
        if (targets.empty()) stuck.push_back({record, &group, &call, -1});
      }
  }
  std::set<int> waiting;
  for (const Wait& wait : waits) waiting.insert(wait.waiter->rank);

  std::set<int> asked;
  for (const Wait& wait : waits)
    if (!waiting.contains(wait.target)) asked.insert(wait.target);
  for (const int rank : asked)
    if (!records.contains(rank)) unknown.push_back({.rank = rank, .present = false});
  for (const RankRecord& record : unknown) records[record.rank] = &record;

  const auto worse = [&](const RankRecord* a, const RankRecord* b) {
    const auto key = [&](const RankRecord* record) {
      uint64_t calls = 0;
      for (const RecordedGroup& group : record->groups) calls += group.collectives + group.exchanges;
      return std::pair(severity(*record), calls);
    };
    return key(a) < key(b);
  };
  const RankRecord* worst = nullptr;
  for (const int rank : asked)
    if (const RankRecord* record = records[rank]; !worst || worse(record, worst)) worst = record;
  // Dead and failed ranks are to blame even before anybody waits for them.
  for (const auto& [rank, record] : records)
    if (!asked.contains(rank) && severity(*record) <= 2 && (!worst || severity(*record) < severity(*worst)))
      worst = record;
  const bool clear = worst && severity(*worst) <= 4;
  if (!clear)
    if (auto mismatch = find_mismatch(stuck, records)) return *mismatch;
  if (worst) return blame(*worst, waits, records);
  if (!waits.empty()) return describe_circle(waits);
  if (!stuck.empty())
    return {std::nullopt,
            fmt::format("all ranks of group {} made {}, and it does not end: the connection between them is slow or cut",
                        stuck.front().group->name, named(*stuck.front().group, *stuck.front().call))};
  return {std::nullopt, "no rank waits for another"};
}

}  // namespace sauropod::comm
