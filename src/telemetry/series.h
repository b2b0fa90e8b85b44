// Curves of a run, made small enough to draw.
#pragma once

#include <cstddef>
#include <vector>

namespace sauropod::telemetry {

// Values over steps. Values that aren't known are NaN.
struct Curve {
  std::vector<double> step;
  std::vector<double> tokens;
  std::vector<double> value;  // the mean of the steps that one point stands for
  // 0 for steps that were skipped, 1 for others; empty when none were. A point for several steps is the
  // mean of those that weren't skipped, if there are any.
  std::vector<double> weight;
  // The least and the greatest of them; empty when each point stands for one step.
  std::vector<double> low, high;

  size_t size() const { return step.size(); }
};

// At most `limit` points: neighbouring steps are put together, so that no extreme is lost. Points
// without any known value are left out.
Curve reduce(const Curve& curve, size_t limit);

// The values smoothed by local linear fits with tricube weights over about a twenty-fifth of the curve,
// less near its start, where losses fall steeply; skipped steps don't count. Unlike a moving average it
// doesn't lag and stays true at the end.
std::vector<double> smooth(const Curve& curve);

// The median of the known values; NaN when there are none.
double median(std::vector<double> values);

}  // namespace sauropod::telemetry
