#include "cluster/failure.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/error.h"
#include "comm/verdict.h"

namespace sauropod::cluster {
namespace {

constexpr size_t kOthersListed = 16;

const comm::RankRecord* find(const std::vector<comm::RankRecord>& records, int rank) {
  for (const comm::RankRecord& record : records)
    if (record.rank == rank) return &record;
  return nullptr;
}

// The first that died, among those that `count`.
template <class F>
std::optional<int> first_dead(const std::vector<RankFate>& ranks, F count) {
  std::optional<int> first;
  for (int rank = 0; rank < std::ssize(ranks); ++rank)
    if (ranks[rank].died() && count(rank) && (!first || ranks[rank].order < ranks[*first].order)) first = rank;
  return first;
}

std::optional<int> first_of_lost_host(const std::vector<RankFate>& ranks) {
  const auto at = std::find_if(ranks.begin(), ranks.end(), [](const RankFate& fate) { return fate.host_lost; });
  if (at == ranks.end()) return std::nullopt;
  return static_cast<int>(at - ranks.begin());
}

std::string name_of(const std::vector<RankFate>& ranks, int rank) {
  return fmt::format("rank {} ({}, process {})", rank, ranks[rank].host, ranks[rank].process);
}

std::string fate_of(const RankFate& fate) {
  if (!fate.unkillable.empty()) return "does not end, even by SIGKILL: " + fate.unkillable;
  if (fate.host_lost) return "was on a host that is lost";
  if (!fate.ending) return "has not ended";
  if (fate.ending->by_launcher && fate.ending->signal) return "was ended by the launcher (" + signal_name(fate.ending->signal) + ")";
  return describe(*fate.ending);
}

// "2", or "0, 1, 3", or "0 to 15": ranks that fared alike.
std::string list(const std::vector<int>& ranks) {
  std::string text;
  for (size_t i = 0; i < ranks.size();) {
    size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    if (!text.empty()) text += ", ";
    text += end - i < 3 ? std::to_string(ranks[i]) : fmt::format("{} to {}", ranks[i], ranks[end - 1]);
    i = end - i < 3 ? i + 1 : end;
  }
  return text;
}

}  // namespace

Blame find_blame(const std::vector<RankFate>& ranks, const std::vector<comm::RankRecord>& records,
                 const Blame& before) {
  comm::Verdict verdict;
  if (!records.empty()) verdict = comm::judge(records);
  const auto victim = [&](int rank) {
    const comm::RankRecord* record = find(records, rank);
    return record && record->status == comm::Status::gave_up;
  };
  const auto own = first_dead(ranks, [&](int rank) { return !victim(rank); });
  // A rank that was stopped is continued to be ended, and may then wait for one that has given up on it.
  const bool named_a_victim = verdict.rank && victim(*verdict.rank);
  if ((!verdict.rank || named_a_victim) && !own && before.rank && !ranks[*before.rank].died())
    return before;
  Blame blame{.rank = verdict.rank, .sentence = verdict.sentence};
  const comm::RankRecord* named = blame.rank ? find(records, *blame.rank) : nullptr;
  const bool failed = named && named->status == comm::Status::failed;
  if (blame.rank && !failed && ranks[*blame.rank].died() && own) blame.rank = own;
  if (!blame.rank) blame.rank = own;
  if (!blame.rank) blame.rank = first_of_lost_host(ranks);
  if (!verdict.rank || blame.rank != verdict.rank) blame.sentence.clear();
  // Ranks that gave up settled among themselves why, and knew then for what they waited.
  const auto gave_up = std::find_if(records.begin(), records.end(), [](const comm::RankRecord& record) {
    return record.status == comm::Status::gave_up;
  });
  if (gave_up != records.end() &&
      blame.sentence.find("; ") == std::string::npos &&
      (!blame.rank || gave_up->failure.starts_with(fmt::format("rank {} (", *blame.rank))))
    blame.sentence = gave_up->failure;
  else if (!blame.rank)
    blame.sentence = verdict.sentence;
  if (!blame.rank) blame.rank = first_dead(ranks, [](int) { return true; });
  return blame;
}

int exit_code(const std::vector<RankFate>& ranks, const Blame& blame) {
  constexpr int failed = static_cast<int>(base::Exit::failed);
  if (blame.rank) {
    const auto& ending = ranks[*blame.rank].ending;
    if (ending && !ending->good() && !(ending->by_launcher && ending->signal)) return ending->exit_code();
  }
  const auto first = first_dead(ranks, [](int) { return true; });
  return first ? ranks[*first].ending->exit_code() : failed;
}

std::string headline(const std::vector<RankFate>& ranks, const Blame& blame) {
  if (!blame.rank) return "no rank in particular is to blame";
  const RankFate& fate = ranks[*blame.rank];
  if (fate.host_lost) return fmt::format("host {} is lost, with rank {}", fate.host, *blame.rank);
  if (fate.died()) return name_of(ranks, *blame.rank) + " " + describe(*fate.ending);
  return name_of(ranks, *blame.rank) + " holds up the others";
}

std::string report(const std::vector<RankFate>& ranks, const Blame& blame,
                   const std::deque<std::string>& last_words) {
  std::string text = headline(ranks, blame);
  if (blame.rank && !ranks[*blame.rank].died() && !ranks[*blame.rank].host_lost)
    text += "; it " + fate_of(ranks[*blame.rank]);
  if (!blame.sentence.empty()) text += "\n  flight recorder: " + blame.sentence;
  if (blame.rank) {
    text += last_words.empty() ? "\n  it said nothing on standard error" : "\n  its last words:";
    for (const std::string& line : last_words) text += "\n    " + line;
  }
  std::vector<std::pair<std::string, std::vector<int>>> others;
  for (int rank = 0; rank < std::ssize(ranks); ++rank) {
    if (rank == blame.rank) continue;
    const std::string fate = fate_of(ranks[rank]);
    auto at = std::find_if(others.begin(), others.end(), [&](const auto& other) { return other.first == fate; });
    if (at == others.end()) at = others.insert(at, {fate, {}});
    at->second.push_back(rank);
  }
  size_t listed = 0;
  for (const auto& [fate, these] : others) {
    if (listed++ == kOthersListed) return text + "\n  and others";
    text += fmt::format("\n  rank{} {}: {}", these.size() == 1 ? "" : "s", list(these), fate);
  }
  return text;
}

}  // namespace sauropod::cluster
