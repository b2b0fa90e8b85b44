// The key-value store through which ranks find each other and leave word: c10d's TCPStore. One process (the
// launcher, or rank 0) serves it; all connect.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace sauropod::comm {

// Serves a store for as long as it lives, on a thread of its own.
class StoreServer {
 public:
  // Port 0 takes a free one. Throws base::Error when the port is taken.
  explicit StoreServer(int port = 0);
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;
  int port() const;

 private:
  struct Server;
  std::unique_ptr<Server> server_;
};

// A connection. Calls throw CommunicationError when the store is gone or doesn't answer for 10 seconds (its process
// may be stopped), and get() when the key doesn't come in time. Thread-safe.
class Store {
 public:
  // Tries again until the time is over. Every key gets `prefix`.
  Store(std::string host, int port, std::chrono::milliseconds timeout, std::string prefix);
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  std::string address() const;  // "host:port"
  void set(const std::string& key, std::string_view value);
  // Waits until somebody sets the key.
  std::string get(const std::string& key, std::chrono::milliseconds timeout);
  bool has(const std::string& key);
  // The values of keys that exist.
  std::vector<std::string> get_all(const std::vector<std::string>& keys);
  // Adds to a number that starts at 0; returns the sum. Such a key can't be read by get().
  int64_t add(const std::string& key, int64_t amount);
  // Sets the key if its value is `expected`; returns the value it has then.
  std::string compare_set(const std::string& key, const std::string& expected, const std::string& value);
  void erase(const std::string& key);
  // Another connection to the same store.
  std::unique_ptr<Store> again(std::chrono::milliseconds timeout) const;

  struct Client;  // holds the c10d::Store; comm/c10d_store.h
  const Client& client() const { return *client_; }
  const std::string& prefix() const { return prefix_; }

 private:
  std::string host_;
  int port_;
  std::string prefix_;
  std::shared_ptr<Client> client_;
};

}  // namespace sauropod::comm
