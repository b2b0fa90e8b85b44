#include "comm/reduce.h"

#include <c10/util/BFloat16.h>

#include <algorithm>
#include <type_traits>

#include "base/error.h"

namespace sauropod::comm {
namespace {

constexpr int64_t kBlock = 1024;  // elements summed at a time: the accumulator stays in the first cache

template <class T>
struct Element {
  using Sum = std::conditional_t<std::is_same_v<T, int32_t>, uint32_t,
                                 std::conditional_t<std::is_same_v<T, int64_t>, uint64_t, T>>;
};
template <>
struct Element<c10::BFloat16> {
  using Sum = float;
};

template <class T>
T larger(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) return a > b || a != a ? a : b;
  return a > b ? a : b;
}

template <class T, bool kMax>
void run(std::span<const void* const> sources, T* output, int64_t count) {
  using Sum = std::conditional_t<kMax && std::is_integral_v<T>, T, typename Element<T>::Sum>;
  Sum sum[kBlock];
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t n = std::min(kBlock, count - begin);
    const T* first = static_cast<const T*>(sources[0]) + begin;
    for (int64_t i = 0; i < n; ++i) sum[i] = static_cast<Sum>(first[i]);
    for (size_t s = 1; s < sources.size(); ++s) {
      const T* next = static_cast<const T*>(sources[s]) + begin;
      if constexpr (kMax)
        for (int64_t i = 0; i < n; ++i) sum[i] = larger<Sum>(sum[i], static_cast<Sum>(next[i]));
      else
        for (int64_t i = 0; i < n; ++i) sum[i] = static_cast<Sum>(sum[i] + static_cast<Sum>(next[i]));
    }
    for (int64_t i = 0; i < n; ++i) output[begin + i] = static_cast<T>(sum[i]);
  }
}

template <class T>
void run(Reduce reduce, std::span<const void* const> sources, void* output, int64_t count) {
  if (reduce == Reduce::max)
    run<T, true>(sources, static_cast<T*>(output), count);
  else
    run<T, false>(sources, static_cast<T*>(output), count);
}

}  // namespace

void reduce(at::ScalarType type, Reduce reduce, std::span<const void* const> sources, void* output,
            int64_t count) {
  switch (type) {
    case at::kFloat: return run<float>(reduce, sources, output, count);
    case at::kDouble: return run<double>(reduce, sources, output, count);
    case at::kBFloat16: return run<c10::BFloat16>(reduce, sources, output, count);
    case at::kInt: return run<int32_t>(reduce, sources, output, count);
    case at::kLong: return run<int64_t>(reduce, sources, output, count);
    case at::kByte: return run<uint8_t>(reduce, sources, output, count);
    default: SAUROPOD_CHECK(false, "reduction of another type");
  }
}

}  // namespace sauropod::comm
