#include "comm/store.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <future>
#include <thread>
#include <utility>

#include <c10/util/Logging.h>

#include "base/error.h"
#include "comm/c10d_store.h"
#include "comm/communicator.h"

namespace sauropod::comm {
namespace {

using namespace std::chrono_literals;

// c10d's errors carry a C++ backtrace after the first line.
std::string first_line(const char* text) {
  const std::string_view whole(text);
  return std::string(whole.substr(0, whole.find('\n')));
}

// c10d logs a backtrace when the store ends before its clients, as it does at the end of every run whose rank 0
// keeps it. What matters of its troubles reaches our own messages as an exception.
void log_errors_only() { FLAGS_caffe2_log_level = std::max(FLAGS_caffe2_log_level, 2); }

constexpr auto kAnswer = 10s;

// Makes a call to the store on a thread of its own, because c10d's calls wait without limit for an answer from a
// process that is stopped. A call that gets none is left behind, with what it holds.
template <class F>
auto bounded(const std::string& address, const std::string& doing, std::chrono::milliseconds limit, F call) {
  using Result = decltype(call());
  auto promise = std::make_shared<std::promise<Result>>();
  auto future = promise->get_future();
  std::thread([promise, call = std::move(call)] {
    try {
      promise->set_value(call());
    } catch (...) {
      promise->set_exception(std::current_exception());
    }
  }).detach();
  if (future.wait_for(limit) != std::future_status::ready)
    throw CommunicationError(fmt::format("the store at {} does not answer ({})", address, doing));
  try {
    return future.get();
  } catch (const std::exception& error) {
    throw CommunicationError(
        fmt::format("the store at {} failed while {}: {}", address, doing, first_line(error.what())));
  }
}

// A listening socket, so that a taken port is told apart from all other trouble.
int listen_on(int port) {
  const int descriptor = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool six = descriptor >= 0;
  const int fd = six ? descriptor : socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) base::fail("no socket for the store: {}", std::strerror(errno));
  const int on = 1, off = 0;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  int result;
  if (six) {
    setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    sockaddr_in6 any{};
    any.sin6_family = AF_INET6;
    any.sin6_port = htons(static_cast<uint16_t>(port));
    result = bind(fd, reinterpret_cast<sockaddr*>(&any), sizeof(any));
  } else {
    sockaddr_in any{};
    any.sin_family = AF_INET;
    any.sin_port = htons(static_cast<uint16_t>(port));
    result = bind(fd, reinterpret_cast<sockaddr*>(&any), sizeof(any));
  }
  if (result == 0) result = listen(fd, 1024);
  if (result != 0) {
    const int error = errno;
    close(fd);
    if (error == EADDRINUSE)
      throw CommunicationError(
          fmt::format("port {} of this host is in use, perhaps by another run: the store can't be served there. "
                      "Choose another one (MASTER_PORT), or end the other run",
                      port));
    throw CommunicationError(fmt::format("the store can't be served on port {}: {}", port, std::strerror(error)));
  }
  return fd;
}

// Tries to reach a port until the time is over: c10d does so too, but shows each try on standard error and waits longer
// than it is told. Returns "" or what went wrong last.
std::string reach(const std::string& host, int port, std::chrono::steady_clock::time_point end) {
  for (std::string problem;;) {
    addrinfo hints{}, *found = nullptr;
    hints.ai_socktype = SOCK_STREAM;
    if (const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found); error != 0)
      problem = gai_strerror(error);
    for (const addrinfo* at = found; at; at = at->ai_next) {
      const int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
      if (fd < 0) continue;
      int error = connect(fd, at->ai_addr, at->ai_addrlen) == 0 ? 0 : errno;
      if (error == EINPROGRESS) {
        const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
        pollfd entry{.fd = fd, .events = POLLOUT, .revents = 0};
        socklen_t length = sizeof(error);
        if (poll(&entry, 1, static_cast<int>(std::clamp<int64_t>(left.count(), 0, 5000))) == 1)
          getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length);
        else
          error = ETIMEDOUT;
      }
      close(fd);
      if (error == 0) {
        freeaddrinfo(found);
        return "";
      }
      problem = std::strerror(error);
    }
    if (found) freeaddrinfo(found);
    if (std::chrono::steady_clock::now() + 100ms >= end) return problem;
    std::this_thread::sleep_for(100ms);
  }
}

int bound_port(int fd) {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length);
  return address.ss_family == AF_INET6 ? ntohs(reinterpret_cast<sockaddr_in6&>(address).sin6_port)
                                       : ntohs(reinterpret_cast<sockaddr_in&>(address).sin_port);
}

}  // namespace

struct StoreServer::Server {
  c10::intrusive_ptr<c10d::TCPStore> store;
};

StoreServer::StoreServer(int port) : server_(std::make_unique<Server>()) {
  const int fd = listen_on(port);
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(bound_port(fd));
  options.isServer = true;
  options.waitWorkers = false;
  options.masterListenFd = fd;
  options.timeout = 60s;
  try {
    server_->store = c10::make_intrusive<c10d::TCPStore>("localhost", options);
  } catch (const std::exception& error) {
    throw CommunicationError(
        fmt::format("the store can't be served on port {}: {}", options.port, first_line(error.what())));
  }
}

StoreServer::~StoreServer() = default;

int StoreServer::port() const { return server_->store->getPort(); }

Store::Store(std::string host, int port, std::chrono::milliseconds timeout, std::string prefix)
    : host_(std::move(host)), port_(port), prefix_(std::move(prefix)), client_(std::make_shared<Client>()) {
  log_errors_only();
  const auto end = std::chrono::steady_clock::now() + timeout;
  std::string problem = reach(host_, port_, end);
  if (problem.empty()) {
    c10d::TCPStoreOptions options;
    options.port = static_cast<uint16_t>(port_);
    options.waitWorkers = false;
    options.timeout = std::max(std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now()), 1000ms);
    try {
      client_->store = c10::make_intrusive<c10d::TCPStore>(host_, options);
    } catch (const std::exception& error) {
      problem = first_line(error.what());
    }
  }
  if (!problem.empty())
    throw CommunicationError(fmt::format(
        "no store answered at {} within {:.0f} s ({}). Is rank 0 running there, and does a firewall let port {} "
        "through?",
        address(), std::chrono::duration<double>(timeout).count(), problem, port_));
}

Store::~Store() = default;

std::string Store::address() const { return fmt::format("{}:{}", host_, port_); }

void Store::set(const std::string& key, std::string_view value) {
  bounded(address(), "writing " + key, kAnswer,
          [client = client_, name = prefix_ + key, bytes = std::vector<uint8_t>(value.begin(), value.end())] {
            client->store->set(name, bytes);
            return 0;
          });
}

// Asks again and again: c10d's own waiting holds up the connection and warns on standard error when time is over.
std::string Store::get(const std::string& key, std::chrono::milliseconds timeout) {
  const auto end = std::chrono::steady_clock::now() + timeout;
  for (auto pause = 1ms; !has(key); pause = std::min(pause * 2, 50ms)) {
    if (std::chrono::steady_clock::now() >= end)
      throw CommunicationError(fmt::format("nobody wrote {} to the store at {} within {:.1f} s", key, address(),
                                           std::chrono::duration<double>(timeout).count()));
    std::this_thread::sleep_for(pause);
  }
  return get_all({key}).front();
}

bool Store::has(const std::string& key) {
  return bounded(address(), "looking for " + key, kAnswer,
                 [client = client_, name = prefix_ + key] { return client->store->check({name}); });
}

std::vector<std::string> Store::get_all(const std::vector<std::string>& keys) {
  std::vector<std::string> names;
  for (const std::string& key : keys) names.push_back(prefix_ + key);
  return bounded(address(), "reading keys", kAnswer, [client = client_, names] {
    std::vector<std::string> values;
    for (const auto& value : client->store->multiGet(names)) values.emplace_back(value.begin(), value.end());
    return values;
  });
}

int64_t Store::add(const std::string& key, int64_t amount) {
  return bounded(address(), "adding to " + key, kAnswer,
                 [client = client_, name = prefix_ + key, amount] { return client->store->add(name, amount); });
}

std::string Store::compare_set(const std::string& key, const std::string& expected, const std::string& value) {
  using Bytes = std::vector<uint8_t>;
  return bounded(address(), "writing " + key, kAnswer,
                 [client = client_, name = prefix_ + key, before = Bytes(expected.begin(), expected.end()),
                  after = Bytes(value.begin(), value.end())] {
                   const auto now = client->store->compareSet(name, before, after);
                   return std::string(now.begin(), now.end());
                 });
}

void Store::erase(const std::string& key) {
  bounded(address(), "removing " + key, kAnswer,
          [client = client_, name = prefix_ + key] { return client->store->deleteKey(name); });
}

std::unique_ptr<Store> Store::again(std::chrono::milliseconds timeout) const {
  return std::make_unique<Store>(host_, port_, timeout, prefix_);
}

}  // namespace sauropod::comm
