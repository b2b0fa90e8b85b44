// Every environment variable the program reads, declared in one place; nothing else calls getenv.
// The table of them is part of the reference (config/reference.h).
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sauropod::config {

struct EnvironmentVariable {
  std::string_view name;
  std::string_view standard;  // the default, in words
  std::string_view help;
};

std::span<const EnvironmentVariable> environment_variables();

enum class ProgressStyle { automatic, plain, off };

// The settings taken from the environment. Each reads its variable anew; a value that can't be meant
// is a base::Error (usage) that names the variable.

// SAUROPOD_LOG: "debug", "info", "warn" or "error".
std::string log_level();
// SAUROPOD_PROGRESS.
ProgressStyle progress_style();
// SAUROPOD_CPU: "auto", "avx512", "avx2" or "portable".
std::string cpu_kernels();
// One of the declared variables by which launchers tell a process its rank, or nothing when it is unset or
// empty. What they mean together is read in comm/launch_environment.h.
std::optional<std::string> launch_variable(std::string_view name);
// OMP_NUM_THREADS: the threads that a computation may use, or nothing.
std::optional<int> openmp_threads();
// All of it, declared or not, as NAME=value: for the programs that this one starts.
std::vector<std::string> environment();
// NO_COLOR (https://no-color.org): false when it is set to anything but nothing.
bool color_allowed();
// LC_ALL, LC_CTYPE, LANG: whether the terminal takes UTF-8.
bool utf8_terminal();

}  // namespace sauropod::config
