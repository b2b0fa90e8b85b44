// Decides whether a step's update is made: not when its loss or gradient is not finite, and not when
// its loss is an outlier against those of the steps before.
#pragma once

#include <deque>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "train/options.h"

namespace sauropod::train {

// Its state is part of the training state, so that a resumed run decides alike. Not thread-safe.
class Guard {
 public:
  explicit Guard(const GuardOptions& options) : options_(options) {}

  // Why the step must be skipped; empty: it is fine, and its loss joins the window. Throws base::Error
  // when more than max_skipped steps in a row were skipped.
  std::string judge(int64_t step, double loss, double gradient_norm);

  int64_t skipped() const { return skipped_; }  // in the whole run
  nlohmann::json state() const;
  void restore(const nlohmann::json& state);

 private:
  std::string verdict(double loss, double gradient_norm) const;

  GuardOptions options_;
  std::deque<double> window_;
  int64_t skipped_ = 0;
  int64_t in_a_row_ = 0;
};

}  // namespace sauropod::train
