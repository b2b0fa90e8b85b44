// Chooses the kernels for the processor at hand.
#include "ops/cpu.h"

#include <cstdlib>
#include <string_view>

namespace sauropod::ops {
namespace {

bool is(const char* forced, std::string_view name) { return forced != nullptr && name == forced; }

#if defined(__x86_64__)
bool supports_avx512() {
  return __builtin_cpu_supports("x86-64-v4") && __builtin_cpu_supports("avx512bf16");
}
bool supports_avx2() { return __builtin_cpu_supports("x86-64-v3"); }
#endif

}  // namespace

bool have_avx512_bf16() {
  static const bool have = &pointwise_kernels() == &pointwise_avx512();
  return have;
}

const PointwiseKernels& pointwise_kernels() {
  static const PointwiseKernels& chosen = []() -> const PointwiseKernels& {
    const char* forced = std::getenv("SAUROPOD_CPU");
#if defined(__x86_64__)
    if (supports_avx512() && !is(forced, "avx2") && !is(forced, "portable"))
      return pointwise_avx512();
    if (supports_avx2() && !is(forced, "portable")) return pointwise_avx2();
#endif
    return pointwise_portable();
  }();
  return chosen;
}

}  // namespace sauropod::ops
