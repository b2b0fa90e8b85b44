#include "train/options.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "base/error.h"
#include "config/section.h"

namespace sauropod::train {

void TokenizerOptions::declare(config::Section& section) {
  section.option("path", path, {.help = "The tokenizer's file, copied into every checkpoint"});
}

void DataOptions::declare(config::Section& section) {
  section.table_list("train", train, {.help = "Packed corpora to train on, with their weights"});
  section.option("valid", valid,
                 {.help = "Packed held-out data, without .bin; empty: no validation"});
  section.option("mask_documents", mask_documents,
                 {.help = "Keep attention within documents and count positions from their "
                          "beginnings"});
}

void GuardOptions::declare(config::Section& section) {
  section.option("z_score", z_score,
                 {.help = "Skip a step whose loss lies this many standard deviations above the "
                          "window's mean; 0: never",
                  .min = 0});
  section.option("window", window,
                 {.help = "Losses that the outlier is judged against",
                  .unit = "steps",
                  .min = 8,
                  .max = 100000});
  section.option("max_skipped", max_skipped,
                 {.help = "More skipped steps in a row end the run", .min = 0});
}

void TrainOptions::declare(config::Section& section) {
  section.option("steps", steps, {.help = "Optimizer steps of the whole run", .min = 1});
  section.option("batch_sequences", batch_sequences,
                 {.help = "Global batch", .unit = "sequences", .min = 1, .max = 1 << 24});
  section.option("micro_batch", micro_batch,
                 {.help = "Sequences computed at a time, which bounds the memory of activations; "
                          "0: the whole batch",
                  .unit = "sequences",
                  .min = 0});
  section.option("batch_ramp", batch_ramp,
                 {.help = "Batch sizes of the first steps as [[sequences, steps], ...]; then "
                          "batch_sequences",
                  .min = 1});
  section.option("learning_rate", learning_rate, {.help = "Highest learning rate", .min = 0});
  section.option("min_learning_rate", min_learning_rate,
                 {.help = "Learning rate at the end of the decay", .min = 0});
  section.option("schedule", schedule,
                 {.help = "Shape of the decay; wsd: warm-up, stable, linear decay",
                  .choices = {"cosine", "linear", "wsd", "constant"}});
  section.option("warmup_tokens", warmup_tokens,
                 {.help = "Linear warm-up", .unit = "tokens", .min = 0});
  section.option("decay_tokens", decay_tokens,
                 {.help = "Where the decay ends, from the run's beginning; 0: the run's end",
                  .unit = "tokens",
                  .min = 0});
  section.option("stable_tokens", stable_tokens,
                 {.help = "wsd: where the decay begins; 0: at nine tenths of decay_tokens",
                  .unit = "tokens",
                  .min = 0});
  section.option("beta1", beta1, {.help = "Adam's decay of the first moment", .min = 0, .max = 1});
  section.option("beta2", beta2, {.help = "Adam's decay of the second moment", .min = 0, .max = 1});
  section.option("epsilon", epsilon, {.help = "Adam's epsilon", .min = 0});
  section.option("weight_decay", weight_decay,
                 {.help = "Decoupled weight decay of matrices and embeddings", .min = 0});
  section.option("clip", clip, {.help = "Largest norm of the gradient; 0: not clipped", .min = 0});
  section.option("z_loss", z_loss,
                 {.help = "Weight of the squared log-partition in the loss", .min = 0});
  section.option("loss_chunk", loss_chunk,
                 {.help = "Tokens whose logits exist at once; less memory, more time; 0: by the size of "
                          "the vocabulary",
                  .unit = "tokens", .min = 0});
  section.option("seed", seed, {.help = "Of initial weights and the order of data", .min = 0});
  section.option("precision", precision,
                 {.help = "Of the computation; bf16 keeps a float master copy of the weights, sums and "
                          "gradients; auto: bf16 where the processor has it, else fp32",
                  .choices = {"auto", "fp32", "bf16", "fp64"}});
  section.option("recompute", recompute,
                 {.help = "Activations computed again in the backward pass to save memory",
                  .choices = {"none", "selective", "full"}});
  section.option("device", device,
                 {.help = "Where to compute; meta runs one step on shapes alone",
                  .choices = {"cpu", "cuda", "meta"}});
  section.option("threads", threads, {.help = "Of the computation; 0: OMP_NUM_THREADS, or else all processors",
                                      .min = 0, .max = 1024});
  section.option("deterministic", deterministic,
                 {.help = "The same bits each time on a GPU, at some cost (the CPU always gives "
                          "them)"});
  section.duration("max_time", max_time,
                   {.help = "Checkpoint and end after this time; 0: no limit", .min = 0});
  section.duration("fit_time", fit_time,
                   {.help = "Choose steps so that the run takes about this long, by timing a step at "
                            "the beginning; 0: as steps says",
                    .min = 0});
  section.option("stop_file", stop_file,
                 {.help = "Checkpoint and end when this file appears; empty: none"});
  section.table("guard", guard);
}

void CheckpointOptions::declare(config::Section& section) {
  section.option("path", path, {.help = "Folder; empty: checkpoints in the run's folder"});
  section.option("every", every,
                 {.help = "Write one every so many steps; 0: only at the end", .unit = "steps",
                  .min = 0});
  section.option("keep_last", keep_last,
                 {.help = "Newest checkpoints that are kept; 0: all", .min = 0});
  section.option("keep_every", keep_every,
                 {.help = "Checkpoints of steps divisible by this are kept for ever; 0: none",
                  .unit = "steps",
                  .min = 0});
}

void EvalOptions::declare(config::Section& section) {
  section.option("every", every,
                 {.help = "Evaluate the held-out data every so many steps; 0: only at the end",
                  .unit = "steps",
                  .min = 0});
  section.option("sequences", sequences,
                 {.help = "Windows of held-out data that are evaluated; 0: all", .min = 0});
}

void RunOptions::bind(config::Recipe& recipe) {
  recipe.bind("model", model);
  recipe.bind("tokenizer", tokenizer);
  recipe.bind("data", data);
  recipe.bind("train", train);
  recipe.bind("checkpoint", checkpoint);
  recipe.bind("eval", eval);
  recipe.bind("parallel", parallel);
  recipe.bind("communication", communication);
}

void RunOptions::check() const {
  for (const auto& row : train.batch_ramp)
    if (row.size() != 2)
      base::fail_usage("train.batch_ramp: each element is [sequences, steps], and one has {} numbers",
                       row.size());
  if (train.min_learning_rate > train.learning_rate)
    base::fail_usage("train.min_learning_rate {} is above train.learning_rate {}",
                     train.min_learning_rate, train.learning_rate);
  const int64_t decay = train.decay_tokens == 0 ? total_tokens() : train.decay_tokens;
  if (train.schedule != "constant" && train.warmup_tokens > decay)
    base::fail_usage("train.warmup_tokens {} is more than the {} tokens at which the decay ends; "
                     "lower it, or raise train.decay_tokens or train.steps",
                     train.warmup_tokens, decay);
  if (train.stable_tokens > decay)
    base::fail_usage("train.stable_tokens {} is more than the {} tokens at which the decay ends",
                     train.stable_tokens, decay);
  if (train.beta1 >= 1 || train.beta2 >= 1)
    base::fail_usage("train.beta1 and train.beta2 must be below 1");
}

int64_t RunOptions::batch_of(int64_t step) const {
  for (const auto& row : train.batch_ramp) {
    if (step < row[1]) return row[0];
    step -= row[1];
  }
  return train.batch_sequences;
}

int64_t RunOptions::sequences_before(int64_t step) const {
  int64_t sequences = 0;
  for (const auto& row : train.batch_ramp) {
    const int64_t steps = std::min(step, row[1]);
    sequences += row[0] * steps;
    step -= steps;
  }
  return sequences + step * train.batch_sequences;
}

bool may_change_on_resume(const std::string& key) {
  static constexpr std::array<std::string_view, 15> kFree = {
      "train.steps",         "train.micro_batch",   "train.threads",        "train.recompute",
      "train.max_time",      "train.fit_time",      "train.stop_file",     "train.deterministic",  "train.device",
      "train.guard.z_score", "train.guard.window",  "train.guard.max_skipped",
      "data.valid",          "tokenizer.path",      "data.train"};
  return std::find(kFree.begin(), kFree.end(), key) != kFree.end() ||
         key.starts_with("checkpoint.") || key.starts_with("eval.") ||
         key.starts_with("parallel.") || key.starts_with("communication.");
}

}  // namespace sauropod::train
