// Chooses the kernels for the processor at hand.
#include "ops/cpu.h"

#include <string>

#include "base/error.h"
#include "config/environment.h"

namespace sauropod::ops {
namespace {

#if defined(__x86_64__)
bool supports_avx512() {
  return __builtin_cpu_supports("x86-64-v4") && __builtin_cpu_supports("avx512bf16");
}
bool supports_avx2() { return __builtin_cpu_supports("x86-64-v3"); }
#else
bool supports_avx512() { return false; }
bool supports_avx2() { return false; }
#endif

const PointwiseKernels& choose() {
  const std::string wanted = config::cpu_kernels();
  if ((wanted == "avx512" && !supports_avx512()) || (wanted == "avx2" && !supports_avx2()))
    base::fail_usage("SAUROPOD_CPU is {}, which this processor doesn't have; unset it", wanted);
#if defined(__x86_64__)
  const bool any = wanted == "auto";
  if (wanted == "avx512" || (any && supports_avx512())) return pointwise_avx512();
  if (wanted == "avx2" || (any && supports_avx2())) return pointwise_avx2();
#endif
  return pointwise_portable();
}

}  // namespace

bool have_avx512_bf16() {
  static const bool have = &pointwise_kernels() == &pointwise_avx512();
  return have;
}

const PointwiseKernels& pointwise_kernels() {
  static const PointwiseKernels& chosen = choose();
  return chosen;
}

}  // namespace sauropod::ops
