#include "train/prepare.h"

#include <algorithm>

#include "base/error.h"
#include "base/threads.h"
#include "config/environment.h"
#include "ops/pointwise_kernel.h"

namespace sauropod::train {

Prepared prepare(const RunSettings& settings) {
  config::Recipe recipe = config::Recipe::load(settings.recipe, settings.sets);
  RunOptions options;
  options.bind(recipe);
  recipe.finish();

  std::optional<tokenizer::Tokenizer> tokenizer;
  if (!options.tokenizer.path.empty())
    tokenizer = tokenizer::Tokenizer::load(options.tokenizer.path);
  options.model.resolve(tokenizer ? tokenizer->size() : 0);
  // With fit_time the number of steps is not known yet.
  if (options.train.fit_time.count() == 0) options.check();

  TrainOptions& train = options.train;
  if (train.precision == "auto")
    train.precision =
        train.device == "cuda" || (train.device == "cpu" && ops::have_avx512_bf16()) ? "bf16" : "fp32";
  // On the meta device one process rehearses all ranks' shapes.
  comm::LaunchEnvironment environment;
  const int64_t replica = options.parallel.tensor * options.parallel.pipeline;
  int64_t ranks = settings.ranks > 0 ? settings.ranks : replica;
  if (train.device != "meta") {
    if (settings.ranks > 0)
      base::fail_usage("--ranks is for a rehearsal on shapes (--set train.device=meta); `sauropod "
                       "launch -n {}` starts that many ranks",
                       settings.ranks);
    environment = comm::read_launch_environment();
    ranks = environment.size;
  }
  parallel::check_layout(options.parallel, options.model, ranks, options.model.context);
  const int64_t data_ranks = ranks / replica;
  if (train.micro_batch == 0)
    train.micro_batch = (train.batch_sequences + data_ranks - 1) / data_ranks;
  if (train.threads == 0)
    train.threads = config::openmp_threads().value_or(
        std::max(1, base::hardware_threads() / std::max(1, environment.local_size)));
  if (train.device != "meta") {
    if (!tokenizer)
      base::fail_usage("{}: tokenizer.path is not set; make a tokenizer with `sauropod tokenizer "
                       "train`, or run on shapes alone with --set train.device=meta",
                       settings.recipe);
    if (options.data.train.empty())
      base::fail_usage("{}: data.train is not set; pack text with `sauropod data pack` and give its "
                       "prefix, e.g. --set data.train=DIR/train",
                       settings.recipe);
  }
  const model::Precision precision = model::parse_precision(train.precision);
  return {settings, std::move(recipe), std::move(options), std::move(tokenizer), precision,
          std::move(environment), ranks};
}

}  // namespace sauropod::train
