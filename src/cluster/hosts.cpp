#include "cluster/hosts.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <set>
#include <sstream>

#include "base/error.h"
#include "base/file.h"

namespace sauropod::cluster {
namespace {

std::optional<int> whole_number(std::string_view text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return number;
}

Host parse_host(std::string_view text) {
  const auto wrong = [&](const char* why) {
    base::fail_usage("host '{}': {}; write NAME or NAME:SLOTS, with SLOTS at least 1", text, why);
  };
  std::string_view name = text, slots;
  bool has_slots = false;
  if (text.starts_with('[')) {
    const size_t close = text.find(']');
    if (close == std::string_view::npos) wrong("a bracket is not closed");
    name = text.substr(1, close - 1);
    slots = text.substr(close + 1);
    has_slots = !slots.empty();
    if (has_slots && !slots.starts_with(':')) wrong("after ] comes a colon");
    if (has_slots) slots.remove_prefix(1);
  } else if (const size_t colon = text.find(':');
             colon != std::string_view::npos && text.rfind(':') == colon) {  // several: an IPv6 address
    name = text.substr(0, colon);
    slots = text.substr(colon + 1);
    has_slots = true;
  }
  if (name.empty()) wrong("it has no name");
  // ssh would take it for an option.
  if (name.starts_with('-')) wrong("a name doesn't begin with a dash");
  Host host{.name = std::string(name)};
  if (has_slots) {
    const auto number = whole_number(slots);
    if (!number || *number < 1) wrong("its slots can't be read");
    host.slots = *number;
  }
  return host;
}

void check(const std::vector<Host>& hosts) {
  std::set<std::string> names;
  for (const Host& host : hosts)
    if (!names.insert(host.name).second)
      base::fail_usage("host {} is named twice; name it once, with slots: {}:2", host.name, host.name);
  const auto with = std::count_if(hosts.begin(), hosts.end(), [](const Host& h) { return h.slots > 0; });
  if (with != 0 && with != std::ssize(hosts))
    base::fail_usage("some hosts have slots and some don't: write them for all or for none");
}

}  // namespace

std::vector<Host> parse_hosts(std::string_view text) {
  std::vector<Host> hosts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    hosts.push_back(parse_host(text.substr(begin, end - begin)));
    begin = end + 1;
  }
  check(hosts);
  return hosts;
}

std::vector<Host> read_host_file(const std::filesystem::path& path) {
  std::vector<Host> hosts;
  std::istringstream lines(base::read_file(path));
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::string word;
    if (!(words >> word)) continue;
    try {
      hosts.push_back(parse_host(word));
      while (words >> word) {
        const auto slots = word.starts_with("slots=") ? whole_number(word.substr(6)) : std::nullopt;
        if (!slots || *slots < 1 || hosts.back().slots > 0)
          base::fail_usage("'{}' can't be read; write NAME, NAME:SLOTS or NAME slots=N", word);
        hosts.back().slots = *slots;
      }
    } catch (const base::Error& error) {
      base::fail_usage("{}, line {}: {}", path.string(), number, error.what());
    }
  }
  if (hosts.empty()) base::fail_usage("{} names no hosts", path.string());
  check(hosts);
  return hosts;
}

std::vector<int> place_ranks(const std::vector<Host>& hosts, int ranks) {
  int64_t slots = 0;
  for (const Host& host : hosts) slots += host.slots;
  if (ranks == 0) {
    if (slots == 0) base::fail_usage("how many ranks? Give -n N, or slots for each host: --hosts a:8,b:8");
    ranks = static_cast<int>(std::min<int64_t>(slots, 1 << 20));
  }
  if (ranks < 1) base::fail_usage("-n {}: at least one rank is needed", ranks);
  std::vector<int> counts;
  if (slots > 0) {
    if (ranks > slots) {
      std::string list;
      for (const Host& host : hosts) list += fmt::format(" {}:{}", host.name, host.slots);
      base::fail_usage("{} ranks, and the hosts have {} slots:{}", ranks, slots, list);
    }
    for (const Host& host : hosts) {
      counts.push_back(std::min(host.slots, ranks));
      ranks -= counts.back();
    }
    return counts;
  }
  const int count = static_cast<int>(hosts.size());
  for (int i = 0; i < count; ++i) counts.push_back(ranks / count + (i < ranks % count ? 1 : 0));
  return counts;
}

}  // namespace sauropod::cluster
