#include "train/guard.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace sauropod::train {

std::string Guard::verdict(double loss, double gradient_norm) const {
  if (!std::isfinite(loss)) return "the loss is not finite";
  if (!std::isfinite(gradient_norm)) return "the norm of the gradient is not finite";
  // A window that is half full has seen the steepest part of the descent only.
  if (options_.z_score == 0 || static_cast<int64_t>(window_.size()) < options_.window) return "";
  double sum = 0, squares = 0;
  for (const double value : window_) sum += value;
  const double mean = sum / static_cast<double>(window_.size());
  for (const double value : window_) squares += (value - mean) * (value - mean);
  const double deviation = std::sqrt(squares / static_cast<double>(window_.size()));
  if (deviation > 0 && loss > mean + options_.z_score * deviation)
    return fmt::format("the loss {:.4f} lies {:.1f} standard deviations above the mean {:.4f} of "
                       "the last {} steps",
                       loss, (loss - mean) / deviation, mean, window_.size());
  return "";
}

std::string Guard::judge(int64_t step, double loss, double gradient_norm) {
  const std::string why = verdict(loss, gradient_norm);
  if (why.empty()) {
    in_a_row_ = 0;
    window_.push_back(loss);
    while (static_cast<int64_t>(window_.size()) > options_.window) window_.pop_front();
    return why;
  }
  ++skipped_;
  ++in_a_row_;
  if (in_a_row_ > options_.max_skipped)
    base::fail("step {}: {}, and {} steps in a row were skipped before it; lower "
               "train.learning_rate, look at the data of the steps in events.jsonl, or raise "
               "train.guard.max_skipped",
               step, why, in_a_row_ - 1);
  return why;
}

nlohmann::json Guard::state() const {
  return {{"window", window_}, {"skipped", skipped_}, {"in_a_row", in_a_row_}};
}

void Guard::restore(const nlohmann::json& state) {
  window_ = state.at("window").get<std::deque<double>>();
  skipped_ = state.at("skipped").get<int64_t>();
  in_a_row_ = state.at("in_a_row").get<int64_t>();
}

}  // namespace sauropod::train
