#include "telemetry/series.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace sauropod::telemetry {

Curve reduce(const Curve& curve, size_t limit) {
  Curve known;
  for (size_t i = 0; i < curve.size(); ++i) {
    if (!std::isfinite(curve.value[i])) continue;
    known.step.push_back(curve.step[i]);
    known.tokens.push_back(curve.tokens[i]);
    known.value.push_back(curve.value[i]);
    if (!curve.weight.empty()) known.weight.push_back(curve.weight[i]);
  }
  if (known.size() <= limit) return known;
  Curve out;
  for (size_t point = 0; point < limit; ++point) {
    const size_t begin = point * known.size() / limit, end = (point + 1) * known.size() / limit;
    double sum = 0, taken = 0, taken_sum = 0, low = known.value[begin], high = low;
    for (size_t i = begin; i < end; ++i) {
      const double weight = known.weight.empty() ? 1 : known.weight[i];
      sum += known.value[i];
      taken += weight;
      taken_sum += weight * known.value[i];
      low = std::min(low, known.value[i]);
      high = std::max(high, known.value[i]);
    }
    const size_t middle = begin + (end - 1 - begin) / 2;
    out.step.push_back(known.step[middle]);
    out.tokens.push_back(known.tokens[middle]);
    out.value.push_back(taken > 0 ? taken_sum / taken : sum / static_cast<double>(end - begin));
    if (!known.weight.empty()) out.weight.push_back(taken > 0);
    out.low.push_back(low);
    out.high.push_back(high);
  }
  return out;
}

std::vector<double> smooth(const Curve& curve) {
  const auto size = static_cast<ptrdiff_t>(curve.size());
  std::vector<double> out(curve.size());
  for (ptrdiff_t at = 0; at < size; ++at) {
    const ptrdiff_t reach = std::min(std::max<ptrdiff_t>(3, size / 25), 1 + at / 3);
    // Weighted least squares of value on distance; the fit at distance 0.
    double w0 = 0, w1 = 0, w2 = 0, v0 = 0, v1 = 0;
    for (ptrdiff_t i = std::max<ptrdiff_t>(0, at - reach); i <= std::min(size - 1, at + reach); ++i) {
      const auto index = static_cast<size_t>(i);
      const auto distance = static_cast<double>(i - at);
      const double u = std::abs(distance) / static_cast<double>(reach + 1);
      const double weight =
          std::pow(1 - u * u * u, 3) * (curve.weight.empty() ? 1 : curve.weight[index]);
      w0 += weight;
      w1 += weight * distance;
      w2 += weight * distance * distance;
      v0 += weight * curve.value[index];
      v1 += weight * distance * curve.value[index];
    }
    const double determinant = w0 * w2 - w1 * w1;
    double& value = out[static_cast<size_t>(at)];
    if (determinant > 1e-12 * w0 * w0) {
      value = (w2 * v0 - w1 * v1) / determinant;
    } else if (w0 > 0) {
      value = v0 / w0;
    } else {  // nothing but skipped steps around
      value = at > 0 ? out[static_cast<size_t>(at) - 1] : curve.value[static_cast<size_t>(at)];
    }
  }
  return out;
}

double median(std::vector<double> values) {
  std::erase_if(values, [](double value) { return !std::isfinite(value); });
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace sauropod::telemetry
