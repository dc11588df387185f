#include "network.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <string>
#include <utility>

#include <ATen/Parallel.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/isinf.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <trainyard/error.hpp>
#include <trainyard/helpers/shape_text.hpp>

namespace trees {
namespace {

using namespace trainyard;

constexpr const char* bytes_name = "trees";

/// A number as XGBoost reads it, to the last bit.
std::string text(double number) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.17g", number);
  return buffer;
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.defined() && a.sizes() == b.sizes() &&
         (a.numel() == 0 || std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0);
}

void require_finite(const at::Tensor& values) {
  const at::Tensor bad = at::nonzero(at::isinf(values));
  if (bad.size(0) == 0) return;
  throw DataError("feature " + std::to_string(bad[0][1].item<std::int64_t>()) + " of row " +
                  std::to_string(bad[0][0].item<std::int64_t>()) +
                  " of a batch is infinite, and trees take finite numbers, or NaN where one is missing");
}

/// Requires of a gradient by two outputs that one is the other's negative, up to rounding.
void require_mirrored(const at::Tensor& gradient) {
  constexpr double rounding = 1e-4;
  const at::Tensor pairs = gradient.detach().reshape({-1, 2});
  const double most = pairs.abs().max().item<double>(), apart = pairs.sum(1).abs().max().item<double>();
  if (apart <= rounding * most) return;
  throw ConfigError(
      "model.mirrored grows one tree for both outputs, and the loss's derivatives by them are not each "
      "other's "
      "negatives: take a loss that sees the difference of two logits alone, such as cross_entropy, or leave "
      "model.mirrored out");
}

/// Places of the indices in ascending order; undefined where they are so already.
at::Tensor order_of(const std::vector<std::int64_t>& indices) {
  if (std::is_sorted(indices.begin(), indices.end())) return {};
  std::vector<std::int64_t> places(indices.size());
  std::iota(places.begin(), places.end(), 0);
  std::stable_sort(places.begin(), places.end(), [&](std::int64_t a, std::int64_t b) {
    return indices[static_cast<std::size_t>(a)] < indices[static_cast<std::size_t>(b)];
  });
  return at::tensor(places, at::kLong);
}

}  // namespace

TreesNetwork::TreesNetwork(const Growth& growth, std::int64_t features,
                           std::vector<std::int64_t> output_shape, std::uint64_t seed)
    : growth_(growth),
      features_(features),
      output_shape_(std::move(output_shape)),
      row_draws_(seed, "model/trees/rows"),
      column_draws_(seed, "model/trees/columns"),
      bytes_(at::empty({0}, at::kByte)) {
  for (const std::int64_t length : output_shape_) outputs_ *= length;
  grown_ = growth_.mirrored && outputs_ == 2 ? 1 : outputs_;
  take(bytes_);
  version_ = bytes_._version();
}

void TreesNetwork::to(at::Device device) {
  if (!device.is_cpu())
    throw ConfigError("run.device is " + device.str() +
                      ", and model trees is for the CPU: set run.device = \"cpu\"");
}

std::vector<NamedTensor> TreesNetwork::buffers() const {
  read();
  if (std::exchange(has_grown_, false)) {
    booster_->save(bytes_);
    version_ = bytes_._version();
  }
  return {{bytes_name, bytes_}};
}

void TreesNetwork::adopt(const std::vector<NamedTensor>& tensors) {
  if (tensors.size() != 1 || tensors.front().name != bytes_name)
    throw ConfigError("the model that is replaced is of another kind: trees take the place of trees alone");
  take(tensors.front().tensor);
  bytes_ = tensors.front().tensor;
  version_ = bytes_._version();
}

/// Takes over bytes that the host has written.
void TreesNetwork::read() const {
  if (bytes_._version() == version_) return;
  take(bytes_);
  version_ = bytes_._version();
}

void TreesNetwork::take(const at::Tensor& bytes) const {
  const bool is_empty = bytes.numel() == 0;
  Booster booster = is_empty ? Booster(grown_) : Booster(bytes, grown_);
  if (const std::int64_t given = is_empty ? features_ : booster.features(); given != features_)
    throw ConfigError("the trees are of data with " + std::to_string(given) + " features, this model has " +
                      std::to_string(features_) + ": give it the data that they were grown on");
  rounds_ = is_empty ? 0 : booster.rounds();
  const bool by_leaves = growth_.max_leaves > 0;
  // What lies half way to the next whole number of features is no other number after rounding.
  const double columns = growth_.column_sample < 1.0
                             ? (static_cast<double>(seen_features()) + 0.5) / static_cast<double>(features_)
                             : 1.0;
  const std::pair<const char*, std::string> parameters[] = {
      {"verbosity", "0"},
      {"disable_default_eval_metric", "1"},
      {"base_score", "0"},
      {"num_feature", std::to_string(features_)},
      {"tree_method", "hist"},
      {"grow_policy", by_leaves ? "lossguide" : "depthwise"},
      {"max_leaves", std::to_string(growth_.max_leaves)},
      {"max_depth", std::to_string(growth_.max_depth)},
      {"max_bin", std::to_string(growth_.max_bin)},
      {"min_child_weight", text(growth_.min_child_weight)},
      {"gamma", text(growth_.min_gain)},
      {"alpha", text(growth_.l1)},
      {"lambda", text(growth_.l2)},
      {"colsample_bytree", text(std::min(columns, 1.0))}};
  for (const auto& [name, value] : parameters) booster.set(name, value);
  if (grown_ > 1) booster.set("num_class", std::to_string(grown_));
  booster_ = std::move(booster);
  has_grown_ = false;
  threads_ = 0;
}

void TreesNetwork::set_threads() const {
  if (const int threads = at::get_num_threads(); std::exchange(threads_, threads) != threads)
    booster_->set("nthread", std::to_string(threads));
}

at::Tensor TreesNetwork::values_of(const Batch& batch) const {
  const at::Tensor& input = batch.input();
  at::Tensor values = input.detach().reshape({input.size(0), -1}).to(at::kFloat).contiguous();
  if (values.size(1) == features_) return values;
  throw DataError("the batch has " + std::to_string(values.size(1)) + " features a sample, the model " +
                  std::to_string(features_));
}

at::Tensor TreesNetwork::shaped(const at::Tensor& margins) const {
  std::vector<std::int64_t> shape = {margins.size(0)};
  shape.insert(shape.end(), output_shape_.begin(), output_shape_.end());
  return (is_mirrored() ? at::cat({margins.neg(), margins}, 1) : margins).reshape(shape);
}

at::Tensor TreesNetwork::forward(const Batch& batch, const ForwardContext& context) {
  if (context.training && c10::GradMode::is_enabled())
    throw ConfigError(
        "model trees has no gradients to go down by, it grows: set executor = { type = \"boosting\" }, or "
        "take a model "
        "with weights");
  const c10::NoGradGuard untracked;
  read();
  const at::Tensor values = values_of(batch);
  if (rounds_ == 0 || values.size(0) == 0) return shaped(at::zeros({values.size(0), grown_}));
  set_threads();
  return shaped(booster_->predict(values));
}

TreesNetwork::Rows TreesNetwork::rows_of(const Batch& batch) const {
  Rows rows{order_of(batch.indices), values_of(batch)};
  if (rows.order.defined() && rows.order.size(0) == rows.values.size(0))
    rows.values = rows.values.index_select(0, rows.order);
  else
    rows.order.reset();
  return rows;
}

/// Has the rows of a batch in the matrix: the one that is there, where they are the same.
void TreesNetwork::keep(const Batch& batch) {
  const std::uint32_t version = batch.input()._version();
  if (compared_.input.is_same(batch.input()) && compared_.version == version &&
      compared_.indices == batch.indices)
    return;
  compared_ = {};
  Rows rows = rows_of(batch);
  rows_.order = rows.order;
  if (!matrix_ || !same_bits(rows_.values, rows.values)) {
    require_finite(rows.values);
    rows_.values = rows.values.is_alias_of(batch.input()) ? rows.values.clone() : rows.values;
    matrix_.emplace(rows_.values, at::get_num_threads());
    ++matrices_made_;
  }
  compared_ = {batch.input(), version, batch.indices};
}

at::Tensor TreesNetwork::margins(const Batch& batch) {
  const c10::NoGradGuard untracked;
  read();
  keep(batch);
  at::Tensor margins = at::zeros({matrix_->size(), grown_});
  if (rounds_ > 0 && matrix_->size() > 0) {
    set_threads();
    margins = booster_->margins(*matrix_);
  }
  if (!rows_.order.defined()) return shaped(margins);
  return shaped(at::empty_like(margins).index_copy_(0, rows_.order, margins));
}

/// What is left of a derivative where a round sees some of the rows alone, by the outputs that have trees.
at::Tensor TreesNetwork::sampled(const at::Tensor& derivative) const {
  at::Tensor rows = derivative.detach().to(at::kFloat).reshape({matrix_->size(), outputs_});
  rows = rows.slice(1, outputs_ - grown_);
  rows = rows_.order.defined() ? rows.index_select(0, rows_.order) : rows.clone(at::MemoryFormat::Contiguous);
  if (growth_.row_sample >= 1.0) return rows;
  at::Tensor draws = at::empty({matrix_->size(), 1});
  row_draws_.at(static_cast<std::uint64_t>(rounds_))
      .fill_uniform({draws.mutable_data_ptr<float>(), static_cast<std::size_t>(draws.numel())});
  return rows.mul_(draws.lt(growth_.row_sample));
}

std::int64_t TreesNetwork::seen_features() const {
  return std::max<std::int64_t>(1, std::llround(growth_.column_sample * static_cast<double>(features_)));
}

/// By a shuffle that ends once as many features are in front as a round sees.
void TreesNetwork::sample_columns() {
  if (growth_.column_sample >= 1.0) return;
  const RandomStream draws = column_draws_.at(static_cast<std::uint64_t>(rounds_));
  std::vector<std::size_t> order(static_cast<std::size_t>(features_));
  std::iota(order.begin(), order.end(), 0);
  std::vector<std::uint8_t> seen(order.size());
  for (std::size_t i = 0; i < static_cast<std::size_t>(seen_features()); ++i) {
    std::swap(order[i], order[i + draws.below(i, order.size() - i)]);
    seen[order[i]] = 1;
  }
  matrix_->see(seen);
}

void TreesNetwork::grow(const Batch& batch, const at::Tensor& gradient, const at::Tensor& hessian,
                        double rate) {
  const c10::NoGradGuard untracked;
  read();
  keep(batch);
  if (matrix_->size() == 0) return;
  if (is_mirrored()) require_mirrored(gradient);
  set_threads();
  booster_->set("eta", text(rate));
  sample_columns();
  booster_->grow(*matrix_, sampled(gradient), sampled(hessian));
  ++rounds_;
  has_grown_ = true;
  compared_ = {};  // the loader may use its memory for the next batch
}

}  // namespace trees
