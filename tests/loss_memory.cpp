// The loss over chunks of tokens against the loss with all logits at once, at a vocabulary of 262,144:
// equal, and with under a quarter of the memory above the weights and their gradients.
//
// loss_memory        runs itself twice, each in a process of its own, and compares
// loss_memory CHUNK  prints the loss, the norms of both gradients, and the peak of memory in bytes above
//                    what was there before
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include "base/error.h"
#include "base/random.h"
#include "ops/cross_entropy.h"

namespace sauropod {
namespace {

constexpr int64_t kTokens = 2048, kHidden = 512, kVocabulary = 262144;

// A field of /proc/self/status in bytes.
int64_t status(const std::string& field) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(field + ":")) return std::atoll(line.c_str() + field.size() + 1) * 1024;
  base::fail("/proc/self/status has no {}", field);
}

at::Tensor numbers(int64_t rows, double deviation) {
  const at::Tensor x = at::empty({rows, kHidden}, at::kFloat);
  // Cheap noise: 134 million normal numbers would take longer than the loss.
  for (int64_t i = 0; i < x.numel(); ++i) {
    const auto bits = static_cast<uint32_t>(i) * 2654435761u;
    x.data_ptr<float>()[i] = static_cast<float>(
        deviation * (static_cast<double>((bits ^ bits >> 15) * 2246822519u) * 0x1p-31 - 1));
  }
  return x;
}

void measure(int64_t chunk) {
  const at::Tensor x = numbers(kTokens, 1);
  const ops::Weight weight{numbers(kVocabulary, 0.05), at::zeros({kVocabulary, kHidden})};
  weight.gradient.fill_(0);  // every page is there
  const at::Tensor targets = at::empty({kTokens}, at::kInt);
  for (int64_t i = 0; i < kTokens; ++i)
    targets.data_ptr<int32_t>()[i] = static_cast<int32_t>(
        base::random_bits(1, static_cast<uint64_t>(i)) % static_cast<uint64_t>(kVocabulary));
  const int64_t before = status("VmRSS");
  std::ofstream("/proc/self/clear_refs") << 5;  // the peak starts here
  const ops::CrossEntropy result =
      ops::linear_cross_entropy(x, weight, targets, {.scale = 1.0 / kTokens, .chunk = chunk});
  const int64_t peak = status("VmHWM") - before;
  std::printf("%.9g %.9g %lld\n", result.loss.item<double>(), weight.gradient.norm().item<double>(),
              static_cast<long long>(peak));
}

struct Measured {
  double loss = 0, gradient = 0;
  long long bytes = 0;
};

Measured in_a_process(const std::string& program, int64_t chunk) {
  FILE* pipe = ::popen(fmt::format("'{}' {}", program, chunk).c_str(), "r");
  SAUROPOD_CHECK(pipe != nullptr);
  Measured m;
  const int found = std::fscanf(pipe, "%lg %lg %lld", &m.loss, &m.gradient, &m.bytes);
  if (::pclose(pipe) != 0 || found != 3) base::fail("the measurement with chunk {} failed", chunk);
  std::printf("chunk %5lld: loss %.6f, gradient %.6g, %.0f MiB\n", static_cast<long long>(chunk), m.loss,
              m.gradient, static_cast<double>(m.bytes) / (1 << 20));
  return m;
}

int compare(const std::string& program) {
  const Measured plain = in_a_process(program, kTokens), chunked = in_a_process(program, 0);
  // Sums of 2048 tokens in another order, in float: 2⁻²⁴ √2048.
  const bool equal = std::abs(chunked.loss - plain.loss) <= 3e-6 * plain.loss &&
                     std::abs(chunked.gradient - plain.gradient) <= 3e-6 * plain.gradient;
  const double ratio = static_cast<double>(chunked.bytes) / static_cast<double>(plain.bytes);
  std::printf("memory above weights and gradients: %.3f of the plain loss's\n", ratio);
  if (!equal) std::printf("FAILED: the losses or gradients differ\n");
  if (!(plain.bytes >= kTokens * kVocabulary * 4)) std::printf("FAILED: the plain loss did not keep its logits\n");
  if (!(ratio < 0.25)) std::printf("FAILED: not under a quarter\n");
  return equal && ratio < 0.25 && plain.bytes >= kTokens * kVocabulary * 4 ? 0 : 1;
}

}  // namespace
}  // namespace sauropod

int main(int argc, char** argv) {
  try {
    if (argc == 1) return sauropod::compare(argv[0]);
    sauropod::measure(std::atoll(argv[1]));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "loss_memory: %s\n", error.what());
    return 1;
  }
}
