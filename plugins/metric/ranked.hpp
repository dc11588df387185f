// What precision_at_k and ndcg_at_k share: the labels of a sample among its k largest scores, each found one
// with the discount of its rank. A sample without labels does not count.
//
// With a file of propensities each label l counts 1 / p_l (Jain, Prabhu, Varma, "Extreme multi-label loss
// functions for recommendation, tagging, ranking & other missing label applications", KDD 2016, section 4):
//   1 / p_l = 1 + C (N_l + B)^-A,  C = (log N - 1)(B + 1)^A,  N_l: how many of the N samples of training have l
// and the value is a share of the best that these labels allow, as the Extreme Classification Repository
// reports it: the sum over samples of what was found by that of what could be.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/zeros_like.h>

#include <trainyard/metric.hpp>
#include <trainyard/state.hpp>

#include <trainyard/helpers/mean_metric.hpp>

#include "../dataset/xc/text.hpp"

namespace metrics {

using namespace trainyard;

struct RankedOptions {
  std::vector<std::int64_t> k = {1, 3, 5};
  std::string propensity_file;
  double propensity_a = 0.55;
  double propensity_b = 1.5;

  static void describe(Manifest<RankedOptions>& m) {
    m.option("k", &RankedOptions::k, "how many scores count, ascending; a value for each").min(1);
    m.option("propensity_file", &RankedOptions::propensity_file,
             "the file of training, as of dataset xc: labels count by the inverse of their propensity, which "
             "their "
             "frequency there gives; empty: all labels count 1")
        .file();
    m.option("propensity_a", &RankedOptions::propensity_a, "A of the propensities").above(0.0);
    m.option("propensity_b", &RankedOptions::propensity_b, "B of the propensities").above(0.0);
  }
};

/// 1 / p of every label, [classes], double.
inline at::Tensor inverse_propensities(const RankedOptions& options, std::int64_t classes) {
  datasets::XcText text(options.propensity_file);
  if (text.classes() != classes)
    throw ConfigError(options.propensity_file + " is a file of " + std::to_string(text.classes()) +
                      " labels, and the data has " + std::to_string(classes) +
                      ": propensity_file has to be the file of training");
  std::vector<double> seen(static_cast<std::size_t>(classes));
  while (text.next())
    for (const std::int32_t label : text.labels()) ++seen[static_cast<std::size_t>(label)];
  const double a = options.propensity_a, b = options.propensity_b;
  const double c = (std::log(static_cast<double>(text.samples())) - 1.0) * std::pow(b + 1.0, a);
  if (c < 0.0)
    throw ConfigError(options.propensity_file + " has " + std::to_string(text.samples()) +
                      " samples, and propensities are made of three or more");
  const at::Tensor inverse = at::empty({classes}, at::kDouble);
  auto* out = inverse.mutable_data_ptr<double>();
  for (const double count : seen) *out++ = 1.0 + c * std::pow(count + b, -a);
  return inverse;
}

class Ranked : public Metric {
 public:
  using Options = RankedOptions;

  /// `name`: "p", of values such as p_5; psp_5 with propensities.
  Ranked(const Options& options, std::string name) : options_(options), name_(std::move(name)) {}

  std::vector<std::string> names() const override {
    std::vector<std::string> names;
    for (const std::int64_t k : options_.k)
      names.push_back((weighted() ? "ps" : "") + name_ + "_" + std::to_string(k));
    return names;
  }

  void check(const std::vector<std::int64_t>& output, const BatchSchema& schema) const override {
    const std::vector<std::int64_t>& k = options_.k;
    if (k.empty() || std::ranges::adjacent_find(k, std::greater_equal<>()) != k.end())
      throw ConfigError("k has to be one number or more, ascending, such as [1, 3, 5]");
    if (schema.classes <= 0 || schema.target.shape.size() > 1 || output != std::vector{schema.classes})
      throw ConfigError("metric " + name_ +
                        "@k needs a score for each class of a sample, and one label or several; " +
                        shapes_text(output, schema));
    if (k.back() > schema.classes)
      throw ConfigError("metric " + name_ + "@k has k = " + std::to_string(k.back()) +
                        ", but the data has only " + std::to_string(schema.classes) + " classes; lower k");
    if (weighted()) inverse_ = inverse_propensities(options_, schema.classes);
  }

  void reset() override {
    sum_.reset();
    weight_.reset();
  }

  void update(const at::Tensor& output, const at::Tensor&, const Batch& batch) override {
    const at::Tensor labels = batch.target.dim() == 1 ? batch.target.unsqueeze(1) : batch.target;
    const at::Tensor real = labels.ge(0);
    const std::int64_t depth = options_.k.back();
    const at::Tensor ranks = at::arange(1, depth + 1, output.options().dtype(at::kDouble));
    const at::Tensor ranked = std::get<1>(at::topk(output, depth));  // [size, depth]
    at::Tensor found = ranked.unsqueeze(-1).eq(labels.unsqueeze(1)).any(-1).to(at::kDouble);
    at::Tensor worth = real.to(at::kDouble);  // of each label
    if (weighted()) {
      inverse_ = inverse_.to(output.device());
      found = found.mul(inverse_.take(ranked));
      worth = worth.mul(inverse_.take(labels.clamp_min(0)));
    }
    const std::int64_t most = std::min(depth, labels.size(1));
    const at::Tensor best = at::constant_pad_nd(std::get<0>(at::topk(worth, most)), {0, depth - most});
    add(up_to_k(found, ranks), up_to_k(best, ranks), real.any(1));
  }

  std::vector<double> compute() const override {
    if (!sum_.defined()) return std::vector(options_.k.size(), std::numeric_limits<double>::quiet_NaN());
    const at::Tensor mean = sum_.div(weight_).cpu();  // 0 / 0 where no sample has a label
    return {mean.const_data_ptr<double>(), mean.const_data_ptr<double>() + mean.numel()};
  }

  void save(StateWriter& state) const override {
    if (!sum_.defined()) return;
    state.tensor("sum", sum_.cpu());
    state.tensor("weight", weight_.cpu());
  }
  void merge(const StateReader& other) override {
    if (!other.has_tensor("sum")) return;
    const at::Tensor& sum = other.tensor("sum");
    const at::Tensor& weight = other.tensor("weight");
    add(sum, weight);
  }

 protected:
  /// Of a rank, [depth], double.
  virtual at::Tensor discount(const at::Tensor& rank) const = 0;
  /// The value of each sample, [size, k], of the sums of what was found and could be found; where it has no
  /// labels both are 0, and so has to be the value.
  virtual at::Tensor value(const at::Tensor& found, const at::Tensor& best, const at::Tensor& k) const = 0;

 private:
  bool weighted() const { return !options_.propensity_file.empty(); }

  /// gains [size, depth] -> their discounted sums, [size, k].
  at::Tensor up_to_k(const at::Tensor& gains, const at::Tensor& ranks) const {
    return gains.mul(discount(ranks)).cumsum(1).index_select(1, k(gains.device()).sub(1));
  }
  at::Tensor k(at::Device device) const {
    const at::Tensor all = at::empty({std::ssize(options_.k)}, at::kLong);
    std::ranges::copy(options_.k, all.mutable_data_ptr<std::int64_t>());
    return all.to(device);
  }

  void add(const at::Tensor& found, const at::Tensor& best, const at::Tensor& labelled) {
    if (weighted()) return add(found.sum(0), best.sum(0));
    add(value(found, best, k(found.device())).sum(0), labelled.sum().to(at::kDouble).expand({found.size(1)}));
  }
  void add(const at::Tensor& sum, const at::Tensor& weight) {
    if (!sum_.defined()) {
      sum_ = at::zeros_like(sum);
      weight_ = at::zeros_like(weight);
    }
    sum_ = sum_.add(sum.to(sum_.device()));
    weight_ = weight_.add(weight.to(weight_.device()));
  }

  Options options_;
  std::string name_;
  mutable at::Tensor inverse_;  ///< read by check, so that a bad file ends the run before it begins
  at::Tensor sum_, weight_;     ///< [k], double
};

}  // namespace metrics
