#include "latency.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <trainyard/random.hpp>

namespace ops {
namespace {

using trainyard::RandomStream;

constexpr std::int64_t features = 26;
constexpr std::size_t ensemble = 4;
constexpr int rounds = 500;

double padded(std::int64_t channels, std::int64_t width) {
  const std::int64_t whole = (channels + width - 1) / width * width;
  return static_cast<double>(whole);
}

/// Height and width of the output.
double edge(const Operator& p) {
  const std::int64_t padding = p.op == "average_pool" ? 0 : (p.kernel - 1) / 2;
  return static_cast<double>(std::max<std::int64_t>(1, (p.size + 2 * padding - p.kernel) / p.stride + 1));
}

/// Multiply-adds of a convolution or a linear layer, elements of the output of what has none.
double work(const Operator& p, double in, double out) {
  const double pixels = static_cast<double>(p.batch) * edge(p) * edge(p);
  const auto kernel = static_cast<double>(p.kernel * p.kernel);
  if (p.op != "conv" && p.op != "linear") return pixels * out;
  return pixels * kernel * in / static_cast<double>(p.groups) * out;
}

double padded_work(const Operator& p, std::int64_t width) {
  // Channels of groups are few each: what is padded there is their sum.
  return p.groups > 1 ? work(p, static_cast<double>(p.in), padded(p.out, width))
                      : work(p, padded(p.in, width), padded(p.out, width));
}

std::array<float, features> features_of(const Operator& p, std::int64_t width) {
  const auto in = static_cast<double>(p.in), out = static_cast<double>(p.out);
  const double area = static_cast<double>(p.batch * p.size * p.size);
  const double weights = in / static_cast<double>(p.groups) * out * static_cast<double>(p.kernel * p.kernel);
  const double plain = work(p, in, out), whole = padded_work(p, width);
  const std::int64_t remainder = width > 1 ? width : 16;
  const auto f = [](double value) { return static_cast<float>(value); };
  return {f(std::log(area)),
          f(static_cast<double>(p.size)),
          f(std::log(in)),
          f(std::log(out)),
          f(static_cast<double>(p.kernel)),
          f(static_cast<double>(p.stride)),
          f(static_cast<double>(p.batch)),
          f(static_cast<double>(p.groups)),
          f(std::log(plain)),
          f(std::log(whole)),
          f(std::log(weights)),
          f(std::log(area * in)),  // the size of the input, by which libraries choose their algorithm
          f(std::log(edge(p) * edge(p) * static_cast<double>(p.batch) * out)),
          f(static_cast<double>(p.in % remainder)),
          f(static_cast<double>(p.out % remainder)),
          f(std::fmod(edge(p) * edge(p), 16.0)),
          f(std::log(whole / (area * in + weights + edge(p) * edge(p) * out))),  // reuse
          f(plain / whole),
          f(in),
          f(out),
          f(padded(p.in, width)),
          f(padded(p.out, width)),
          f(edge(p)),
          f(std::fmod(edge(p), 8.0)),
          f(in * static_cast<double>(p.kernel * p.kernel)),  // the inner length of a matrix product
          f(std::fmod(in * static_cast<double>(p.kernel * p.kernel), static_cast<double>(remainder)))};
}

at::Tensor matrix_of(const std::vector<Operator>& points, std::int64_t width) {
  at::Tensor rows = at::empty({static_cast<std::int64_t>(points.size()), features}, at::kFloat);
  auto* at = rows.mutable_data_ptr<float>();
  for (const Operator& point : points) {
    const auto row = features_of(point, width);
    at = std::copy(row.begin(), row.end(), at);
  }
  return rows;
}

/// Grows trees by squared errors of the logarithm; each round of each member sees its own three quarters of the samples.
trees::Booster grown(const at::Tensor& rows, const std::vector<double>& targets, double mean,
                     std::uint64_t seed) {
  trees::Booster booster(1);
  for (const auto& [name, value] :
       std::initializer_list<std::pair<const char*, const char*>>{{"tree_method", "hist"},
                                                                  {"max_depth", "6"},
                                                                  {"eta", "0.05"},
                                                                  {"min_child_weight", "3"},
                                                                  {"colsample_bynode", "0.7"},
                                                                  {"lambda", "1"},
                                                                  {"nthread", "1"},
                                                                  {"base_score", "0"},
                                                                  {"max_bin", "256"}})
    booster.set(name, value);
  booster.set("seed", std::to_string(seed % 1000000));
  booster.set("num_feature", std::to_string(features));
  const trees::Matrix matrix(rows, 1);
  const auto count = static_cast<std::int64_t>(targets.size());
  at::Tensor gradient = at::empty({count, 1}, at::kFloat), hessian = at::empty({count, 1}, at::kFloat);
  const RandomStream random(seed, "rows");
  at::Tensor margins = at::zeros({count, 1}, at::kFloat);
  for (int round = 0; round < rounds; ++round) {
    const auto* predicted = margins.const_data_ptr<float>();
    auto *g = gradient.mutable_data_ptr<float>(), *h = hessian.mutable_data_ptr<float>();
    const RandomStream draws = random.at(static_cast<std::uint64_t>(round));
    for (std::int64_t i = 0; i < count; ++i) {
      const bool seen = draws.uniform(static_cast<std::uint64_t>(i)) < 0.75;
      g[i] = seen ? static_cast<float>(predicted[i] - (targets[static_cast<std::size_t>(i)] - mean)) : 0.0F;
      h[i] = seen ? 1.0F : 0.0F;
    }
    booster.grow(matrix, gradient, hessian);
    margins = booster.margins(matrix);
  }
  return booster;
}

std::vector<Operator> points_of(const std::vector<Sample>& samples) {
  std::vector<Operator> points;
  points.reserve(samples.size());
  for (const Sample& each : samples) points.push_back(each.point);
  return points;
}

/// Shares of errors within three bounds, and the root of their mean square.
Accuracy shares(const std::vector<double>& predicted, const std::vector<Sample>& samples) {
  Accuracy accuracy{.samples = samples.size()};
  const auto part = 1.0 / static_cast<double>(samples.size());
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const double error = std::abs(predicted[i] / samples[i].seconds - 1.0);
    accuracy.within_5 += error <= 0.05 ? part : 0.0;
    accuracy.within_10 += error <= 0.10 ? part : 0.0;
    accuracy.within_15 += error <= 0.15 ? part : 0.0;
    accuracy.rmspe += error * error * part;
  }
  accuracy.rmspe = std::sqrt(accuracy.rmspe);
  return accuracy;
}

/// A line through the multiply-adds, by least squares of relative errors: what counts multiply-adds would say.
std::vector<double> by_flops(const std::vector<Sample>& fitted, const std::vector<Sample>& asked) {
  double a = 0, b = 0, c = 0, d = 0, e = 0;
  for (const Sample& each : fitted) {
    const double one = 1.0 / each.seconds, x = work_like(each.point) / each.seconds;
    a += one * one, b += one * x, c += x * x, d += one, e += x;
  }
  const double determinant = a * c - b * b;
  const double base = (d * c - e * b) / determinant, slope = (a * e - b * d) / determinant;
  std::vector<double> seconds;
  seconds.reserve(asked.size());
  for (const Sample& each : asked) seconds.push_back(base + slope * work_like(each.point));
  return seconds;
}

}  // namespace

double work_like(const Operator& p) {
  return work(p, static_cast<double>(p.in), static_cast<double>(p.out));
}

std::string family_of(const Operator& p) {
  const std::string kind = p.depthwise()                    ? "depthwise"
                           : p.op == "conv" && p.groups > 1 ? "grouped conv"
                                                            : p.op;
  return kind + " " + p.type + " " + p.phase;
}

LatencyModel::LatencyModel(const std::vector<Sample>& samples, std::int64_t width, std::uint64_t seed)
    : width_(width) {
  const at::Tensor rows = matrix_of(points_of(samples), width);
  std::vector<double> targets;
  targets.reserve(samples.size());
  for (const Sample& each : samples)
    targets.push_back(std::log(each.seconds / padded_work(each.point, width)));
  const double mean =
      std::accumulate(targets.begin(), targets.end(), 0.0) / static_cast<double>(targets.size());
  mean_ = mean;
  for (std::size_t i = 0; i < ensemble; ++i) boosters_.push_back(grown(rows, targets, mean, seed + i));
}

std::vector<double> LatencyModel::seconds(const std::vector<Operator>& points) const {
  const at::Tensor rows = matrix_of(points, width_);
  std::vector<double> seconds(points.size(), mean_);
  for (const trees::Booster& booster : boosters_) {
    const at::Tensor predicted = booster.predict(rows);
    for (std::size_t i = 0; i < points.size(); ++i)
      seconds[i] += predicted.const_data_ptr<float>()[i] / static_cast<double>(ensemble);
  }
  for (std::size_t i = 0; i < points.size(); ++i)
    seconds[i] = std::exp(seconds[i]) * padded_work(points[i], width_);
  return seconds;
}

double LatencyModel::seconds(const Operator& point) const {
  return seconds(std::vector{point}).front();
}

Accuracy accuracy_of(const LatencyModel& model, const std::vector<Sample>& fitted,
                     const std::vector<Sample>& held_out) {
  Accuracy accuracy = shares(model.seconds(points_of(held_out)), held_out);
  accuracy.flops_within_10 = shares(by_flops(fitted, held_out), held_out).within_10;
  return accuracy;
}

std::vector<Operator> hard_points(const std::vector<Sample>& samples, std::int64_t width,
                                  std::uint64_t seed) {
  constexpr std::size_t folds = 5;
  std::vector<Operator> hard;
  for (std::size_t fold = 0; fold < folds; ++fold) {
    std::vector<Sample> fitted, left_out;
    for (std::size_t i = 0; i < samples.size(); ++i)
      (i % folds == fold ? left_out : fitted).push_back(samples[i]);
    const std::vector<double> predicted = LatencyModel(fitted, width, seed).seconds(points_of(left_out));
    for (std::size_t i = 0; i < left_out.size(); ++i)
      if (std::abs(predicted[i] / left_out[i].seconds - 1.0) > 0.1) hard.push_back(left_out[i].point);
  }
  return hard;
}

void Latencies::fit(const std::vector<Sample>& samples, std::int64_t width, std::uint64_t seed) {
  constexpr std::size_t least = 30;
  std::map<std::string, std::vector<Sample>> families;
  for (const Sample& each : samples) families[family_of(each.point)].push_back(each);
  for (const auto& [family, of_it] : families)
    if (of_it.size() >= least) models_.insert_or_assign(family, LatencyModel(of_it, width, seed));
}

std::optional<double> Latencies::seconds(const Operator& point) const {
  const auto found = models_.find(family_of(point));
  if (found == models_.end()) return std::nullopt;
  return found->second.seconds(point);
}

}  // namespace ops
