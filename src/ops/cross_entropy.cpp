// The output layer and the loss over chunks of tokens.
#include "ops/cross_entropy.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/logsumexp.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/error.h"
#include "comm/communicator.h"
#include "ops/cpu.h"
#include "ops/cross_entropy_cpu.h"
#include "ops/gemm.h"
#include "ops/linear.h"
#include "ops/node.h"

namespace sauropod::ops {
namespace {

class CrossEntropyBackward : public Node {
 public:
  explicit CrossEntropyBackward(at::Tensor dx) : Node("LinearCrossEntropy"), dx_(std::move(dx)) {}

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    SAUROPOD_CHECK(gradients[0].is_meta() || gradients[0].item<double>() == 1.0,
                   "the loss must be the root of the backward pass: its gradients are computed "
                   "forward, and scaling is CrossEntropyOptions::scale");
    return {std::move(dx_)};
  }

 private:
  at::Tensor dx_;
};

// A chunk of tokens.
struct Chunk {
  at::Tensor logits;   // [rows, width], of items [first_item, first_item + width)
  at::Tensor targets;  // [rows]
  int64_t first_item;
  // [rows], float or double
  at::Tensor nats, log_sum;
};

// The targets' places among the logits, and which rows have theirs among them.
std::pair<at::Tensor, at::Tensor> places(const Chunk& c) {
  const at::Tensor place = c.targets.to(at::kLong).sub(c.first_item);
  const at::Tensor here = c.targets.ge(0).logical_and(place.ge(0)).logical_and(place.lt(c.logits.size(1)));
  return {place.clamp(0, c.logits.size(1) - 1).unsqueeze(1), here};
}

// ln Σ exp and the target's logit of each row, the latter 0 where it is not here.
void statistics_aten(const Chunk& c, at::Tensor log_sum, at::Tensor target_logit) {
  if (c.logits.is_meta()) return;
  if (c.logits.size(1) == 0) {
    log_sum.fill_(-std::numeric_limits<double>::infinity());
    target_logit.zero_();
    return;
  }
  const at::Tensor wide = c.logits.to(log_sum.scalar_type());
  const auto [place, here] = places(c);
  log_sum.copy_(at::logsumexp(wide, {1}));
  target_logit.copy_(wide.gather(1, place).squeeze(1).masked_fill(here.logical_not(), 0));
}

// c.log_sum is of the whole vocabulary; the logits become the gradient.
void gradient_aten(const Chunk& c, double scale, double z_loss) {
  if (c.logits.is_meta() || c.logits.size(1) == 0) return;
  const at::ScalarType type = c.log_sum.scalar_type();
  const auto [place, here] = places(c);
  const at::Tensor row_scale = c.log_sum.mul(2 * z_loss).add(1).mul(c.targets.ge(0)).mul(scale);
  at::Tensor gradient =
      c.logits.to(type).sub(c.log_sum.unsqueeze(1)).exp().mul(row_scale.unsqueeze(1));
  gradient.scatter_add_(1, place, here.to(type).mul(-scale).unsqueeze(1));
  c.logits.copy_(gradient);
}

// Makes c.log_sum and c.nats those of the whole vocabulary, the same bits on all ranks: each combines what
// all of them have.
void combine(const Chunk& c, const at::Tensor& mine, comm::Communicator& group) {
  const at::Tensor all = at::empty({group.size(), 2, mine.size(1)}, mine.options());
  group.all_gather("sums of the loss", mine, all).wait();
  if (all.is_meta()) return;
  c.log_sum.copy_(at::logsumexp(all.select(1, 0).to(at::kDouble), {0}));
  c.nats.copy_(c.log_sum.sub(all.select(1, 1).sum({0})));
}

// Writes c.nats and c.log_sum; with scale the logits become their gradient.
void cross_entropy(const Chunk& c, double scale, double z_loss, comm::Communicator* group) {
  const bool kernels = has_kernels(c.logits);
  const auto* targets = kernels ? elements<int32_t>(c.targets) : nullptr;
  const auto scale_f = static_cast<float>(scale), z_loss_f = static_cast<float>(z_loss);
  if (group == nullptr && kernels) {
    cross_entropy_cpu(c.logits, targets, scale_f, z_loss_f, elements<float>(c.nats),
                      elements<float>(c.log_sum));
    return;
  }
  const at::Tensor mine = at::empty({2, c.targets.size(0)}, c.nats.options());
  const at::Tensor log_sum = mine.select(0, 0), target_logit = mine.select(0, 1);
  if (kernels) {
    cross_entropy_statistics_cpu(c.logits, targets, c.first_item, elements<float>(log_sum),
                                 elements<float>(target_logit));
  } else {
    statistics_aten(c, log_sum, target_logit);
  }
  if (group != nullptr) {
    combine(c, mine, *group);
  } else {
    c.log_sum.copy_(log_sum);
    c.nats.copy_(log_sum.sub(target_logit));
  }
  if (scale != 0) {
    if (kernels) {
      cross_entropy_gradient_cpu(c.logits, targets, c.first_item, elements<float>(c.log_sum), scale_f,
                                 z_loss_f);
    } else {
      gradient_aten(c, scale, z_loss);
    }
  }
  const at::Tensor left_out = c.targets.lt(0);
  at::Tensor(c.nats).masked_fill_(left_out, 0);
  at::Tensor(c.log_sum).masked_fill_(left_out, 0);
}

void check_targets(const at::Tensor& targets, int64_t vocabulary) {
  if (!targets.is_cpu()) return;
  const auto* items = elements<int32_t>(targets);
  for (int64_t i = 0; i < targets.size(0); ++i)
    if (items[i] >= vocabulary)
      base::fail("target {} is outside the model's vocabulary of {}: was the data packed with another "
                 "tokenizer?",
                 items[i], vocabulary);
}

}  // namespace

int64_t default_chunk(int64_t tokens, int64_t vocabulary, int64_t element_bytes) {
  constexpr int64_t kTokens = 1024;
  const int64_t elements = (element_bytes >= 4 ? int64_t{112} : int64_t{64}) << 20;
  const int64_t fitting = std::min(kTokens, elements / vocabulary);
  // Whole multiples of 64 keep the products' blocks full.
  return std::min(tokens, std::max<int64_t>(64, fitting / 64 * 64));
}

CrossEntropy linear_cross_entropy(const at::Tensor& x, const Weight& weight,
                                  const at::Tensor& targets, const CrossEntropyOptions& options) {
  SAUROPOD_CHECK(x.dim() == 2 && targets.dim() == 1 && targets.size(0) == x.size(0) &&
                 targets.scalar_type() == at::kInt && x.size(1) == weight.value.size(1));
  SAUROPOD_CHECK(!options.gradients || options.scale != 0);
  const int64_t tokens = x.size(0), rows = weight.value.size(0);
  const int64_t vocabulary = options.vocabulary > 0 ? options.vocabulary : rows;
  comm::Communicator* const group =
      options.group != nullptr && options.group->size() > 1 ? options.group : nullptr;
  SAUROPOD_CHECK(group == nullptr ? options.first_item == 0 && vocabulary == rows
                                  : options.vocabulary > 0 && options.first_item >= 0 &&
                                        options.first_item + rows <= vocabulary,
                 "items {} to {} of {}", options.first_item, options.first_item + rows, vocabulary);
  const int64_t ranks = group == nullptr ? 1 : group->size();
  const int64_t chunk = options.chunk > 0 ? options.chunk
                                          : default_chunk(tokens, (vocabulary + ranks - 1) / ranks,
                                                          x.element_size());
  const double scale = options.gradients ? options.scale : 0;
  const auto type = x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor items = targets.contiguous();
  check_targets(items, vocabulary);

  at::Tensor nats, log_sum, dx;
  {
    const at::NoGradGuard no_grad;
    const at::Tensor states = x.detach().contiguous();
    nats = at::empty({tokens}, states.options().dtype(type));
    log_sum = at::empty({tokens}, nats.options());
    if (options.gradients) dx = at::empty({tokens, x.size(1)}, states.options());
    const at::Tensor buffer = at::empty({std::min(chunk, tokens), rows}, states.options());
    for (int64_t begin = 0; begin < tokens; begin += chunk) {
      const int64_t count = std::min(chunk, tokens - begin);
      const at::Tensor part = states.narrow(0, begin, count);
      const Chunk c{buffer.narrow(0, 0, count), items.narrow(0, begin, count), options.first_item,
                    nats.narrow(0, begin, count), log_sum.narrow(0, begin, count)};
      if (rows > 0) times_transposed_out(c.logits, part, weight.value);
      cross_entropy(c, scale, options.z_loss, group);
      if (!options.gradients) continue;
      if (rows > 0) {
        accumulate_linear_gradient(c.logits, part, weight);
        times_out(dx.narrow(0, begin, count), c.logits, weight.value);
      } else {
        dx.narrow(0, begin, count).zero_();
      }
    }
  }
  CrossEntropy result;
  {
    const at::NoGradGuard no_grad;
    // Sums of many tokens are formed in double.
    at::Tensor sum = nats.sum(at::kDouble);
    if (options.z_loss != 0) sum = sum.add(log_sum.square().sum(at::kDouble).mul(options.z_loss));
    result.loss = sum.mul(options.scale).to(type);
    result.nats = nats;
  }
  if (options.gradients && recording())
    attach(c10::make_intrusive<CrossEntropyBackward>(std::move(dx)), {x}, {result.loss});
  return result;
}

}  // namespace sauropod::ops
