#include <trainyard/statistics.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

#include <trainyard/error.hpp>

namespace trainyard {

double Statistics::nan() {
  return std::numeric_limits<double>::quiet_NaN();
}

double Statistics::l2() const {
  return std::sqrt(squares);
}

Statistics statistics(const at::Tensor& tensor) {
  const at::Tensor values = tensor.detach().cpu().to(at::kDouble).contiguous();
  const double* x = values.const_data_ptr<double>();
  Statistics s;
  s.count = values.numel();
  if (s.count == 0) {
    s.minimum = s.maximum = s.abs_minimum = s.abs_maximum = Statistics::nan();
    return s;
  }
  s.minimum = s.abs_minimum = std::numeric_limits<double>::infinity();
  s.maximum = s.abs_maximum = -std::numeric_limits<double>::infinity();
  for (std::int64_t i = 0; i < s.count; ++i) {
    const double a = std::abs(x[i]);
    s.zeros += x[i] == 0.0;
    s.nans += std::isnan(x[i]);
    s.infinities += std::isinf(x[i]);
    s.minimum = std::isnan(x[i]) || x[i] < s.minimum ? x[i] : s.minimum;
    s.maximum = std::isnan(x[i]) || x[i] > s.maximum ? x[i] : s.maximum;
    s.abs_minimum = std::isnan(a) || a < s.abs_minimum ? a : s.abs_minimum;
    s.abs_maximum = std::isnan(a) || a > s.abs_maximum ? a : s.abs_maximum;
    s.sum += x[i];
    s.l1 += a;
    s.squares += a * a;
    s.product *= x[i];
  }
  for (std::int64_t i = 0; i < s.count; ++i) {
    const double d = x[i] - s.mean(), a = std::abs(x[i]) - s.abs_mean();
    s.deviation += d * d;
    s.abs_deviation += a * a;
  }
  return s;
}

namespace {

struct Reduction {
  std::string_view name;
  double (*of)(const Statistics&);
};

constexpr Reduction reductions[] = {
    {"min", [](const Statistics& s) { return s.minimum; }},
    {"max", [](const Statistics& s) { return s.maximum; }},
    {"mean", [](const Statistics& s) { return s.mean(); }},
    {"std", [](const Statistics& s) { return std::sqrt(s.variance()); }},
    {"variance", [](const Statistics& s) { return s.variance(); }},
    {"sum", [](const Statistics& s) { return s.sum; }},
    {"prod", [](const Statistics& s) { return s.product; }},
    {"l1", [](const Statistics& s) { return s.l1; }},
    {"l2", [](const Statistics& s) { return s.l2(); }},
    {"abs_min", [](const Statistics& s) { return s.abs_minimum; }},
    {"abs_max", [](const Statistics& s) { return s.abs_maximum; }},
    {"abs_mean", [](const Statistics& s) { return s.abs_mean(); }},
    {"abs_std", [](const Statistics& s) { return std::sqrt(s.abs_variance()); }},
    {"abs_variance", [](const Statistics& s) { return s.abs_variance(); }},
    {"abs_sum", [](const Statistics& s) { return s.l1; }},
    {"abs_prod", [](const Statistics& s) { return std::abs(s.product); }},
    {"abs_l1", [](const Statistics& s) { return s.l1; }},
    {"abs_l2", [](const Statistics& s) { return s.l2(); }},
    {"zeros", [](const Statistics& s) { return static_cast<double>(s.zeros); }},
    {"nans", [](const Statistics& s) { return static_cast<double>(s.nans); }},
    {"infinities", [](const Statistics& s) { return static_cast<double>(s.infinities); }},
    {"nonfinite", [](const Statistics& s) { return static_cast<double>(s.nonfinite()); }},
    {"count", [](const Statistics& s) { return static_cast<double>(s.count); }},
};

const Reduction* find(std::string_view name) {
  const auto found = std::find_if(std::begin(reductions), std::end(reductions),
                                  [&](const Reduction& each) { return each.name == name; });
  return found == std::end(reductions) ? nullptr : &*found;
}

}  // namespace

bool is_reduction(std::string_view name) {
  return find(name) != nullptr;
}

double reduction(const Statistics& statistics, std::string_view name) {
  const Reduction* found = find(name);
  if (found == nullptr) throw PluginError("there is no reduction \"" + std::string(name) + "\"");
  return found->of(statistics);
}

}  // namespace trainyard
