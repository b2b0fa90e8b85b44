// Errors a user can cause, and assertions for bugs.
//
// Code throws base::Error for what a user can cause and mend: the message says what is wrong, where,
// and what to do about it. SAUROPOD_CHECK is for invariants of this program; it throws
// base::Bug, which `main` reports with the place in the source. Neither is caught on the way to
// `main` except to add context or to hand it to another thread.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>

namespace sauropod::base {

// Exit codes of the program: 0 ok, 1 failed, 2 wrong use (arguments, recipes, bad input files).
enum class Exit : int { ok = 0, failed = 1, usage = 2 };

class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message, Exit exit_code = Exit::failed)
      : std::runtime_error(message), exit_code_(exit_code) {}
  Exit exit_code() const { return exit_code_; }

 private:
  Exit exit_code_;
};

// An Error that a system call reported, for callers that tell a full disk from a missing file.
class SystemError : public Error {
 public:
  SystemError(const std::string& message, int error_number)
      : Error(message), error_number_(error_number) {}
  int error_number() const { return error_number_; }  // errno

 private:
  int error_number_;
};

class Bug : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

// Throws Error with exit code 1: the world let us down (disk full, file damaged, …).
template <typename... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(fmt::format(format, std::forward<Args>(args)...), Exit::failed);
}

// Throws Error with exit code 2: what was asked for can't be meant (unknown key, value out of range).
template <typename... Args>
[[noreturn]] void fail_usage(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(fmt::format(format, std::forward<Args>(args)...), Exit::usage);
}

// Throws SystemError naming the path and errno's text, with a remedy for the common causes
// (disk full, read-only, permission, missing).
[[noreturn]] void fail_errno(const char* action, const std::string& path, int error_number);

[[noreturn]] void report_bug(const char* condition, const char* file, int line,
                             const std::string& detail);

}  // namespace sauropod::base

#define SAUROPOD_CHECK(condition, ...)                                       \
  do {                                                                       \
    if (!(condition)) [[unlikely]]                                           \
      ::sauropod::base::report_bug(#condition, __FILE__, __LINE__,           \
                                   ::fmt::format("" __VA_ARGS__));           \
  } while (false)
