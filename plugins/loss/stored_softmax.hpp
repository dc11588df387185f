// Softmax and cross entropy over the stored entries of a sparse CSR output (Network::forward): of a sample,
// the classes that the network gave a score; the others have no share in its softmax. The labels of a sample
// must be among them: t = 1 / labels for each, and loss and gradient are the means over the samples that have
// any.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/full.h>
#include <ATen/ops/repeat_interleave.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <trainyard/error.hpp>

namespace losses {

using namespace trainyard;

/// Scores as the output stores them, and the labels that they are measured by.
struct Stored {
  at::Tensor values;                  ///< [entries]
  at::Tensor ends;                    ///< int64 [size + 1]: sample i has the entries [i] .. [i + 1)
  at::Tensor classes;                 ///< int64 [entries]
  at::Tensor labels;                  ///< int64 [size, most]
  std::optional<std::int64_t> blank;  ///< a label of this value is none
};

/// One sample: its loss, and exp(score - log of their sum) - t in `gradient`, both times `scale`.
template <class Real>
class StoredSample {
 public:
  StoredSample(std::span<const Real> scores, std::span<const std::int64_t> classes, Real* gradient)
      : scores_(scores), classes_(classes), gradient_(gradient) {}

  double run(std::int64_t sample, std::span<const std::int64_t> labels, std::optional<std::int64_t> blank,
             double scale) {
    const auto counted = labels.size() - static_cast<std::size_t>(
                                             blank ? std::count(labels.begin(), labels.end(), *blank) : 0);
    if (counted == 0) {
      std::fill_n(gradient_, scores_.size(), Real{0});
      return 0.0;
    }
    const double log_sum = exponentiate(scale);
    const double share = 1.0 / static_cast<double>(counted);
    double loss = 0.0;
    for (const std::int64_t label : labels) {
      if (label == blank) continue;
      const std::size_t place = find(label, sample);
      loss += share * (log_sum - static_cast<double>(scores_[place]));
      gradient_[place] -= static_cast<Real>(share * scale);
    }
    return loss * scale;
  }

 private:
  /// Leaves scale * softmax in the gradient.
  double exponentiate(double scale) {
    Real highest = -std::numeric_limits<Real>::infinity();
    for (const Real score : scores_) highest = std::max(highest, score);
    double sum = 0.0;
    for (std::size_t i = 0; i < scores_.size(); ++i) {
      gradient_[i] = std::exp(scores_[i] - highest);
      sum += static_cast<double>(gradient_[i]);
    }
    const auto factor = static_cast<Real>(scale / sum);
    for (std::size_t i = 0; i < scores_.size(); ++i) gradient_[i] *= factor;
    return static_cast<double>(highest) + std::log(sum);
  }

  std::size_t find(std::int64_t label, std::int64_t sample) const {
    const auto found = std::find(classes_.begin(), classes_.end(), label);
    if (found != classes_.end()) return static_cast<std::size_t>(found - classes_.begin());
    throw PluginError("the model left out class " + std::to_string(label) + ", a label of sample " +
                      std::to_string(sample) + " of the batch: its sparse output has to store every label");
  }

  std::span<const Real> scores_;
  std::span<const std::int64_t> classes_;
  Real* gradient_;
};

/// On the CPU, in one pass: the loss and its gradient. The sum over samples is in their order, whatever the
/// threads.
template <class Real>
double stored_cross_entropy(const Stored& stored, at::Tensor& gradient) {
  const std::int64_t size = stored.labels.size(0), most = stored.labels.size(1);
  const std::int64_t* ends = stored.ends.const_data_ptr<std::int64_t>();
  const std::int64_t* classes = stored.classes.const_data_ptr<std::int64_t>();
  const std::int64_t* labels = stored.labels.const_data_ptr<std::int64_t>();
  const Real* values = stored.values.const_data_ptr<Real>();
  Real* gradients = gradient.mutable_data_ptr<Real>();
  const auto labels_of = [&](std::int64_t i) {
    return std::span(labels + i * most, static_cast<std::size_t>(most));
  };
  std::int64_t counted = 0;
  for (std::int64_t i = 0; i < size; ++i)
    counted += std::ranges::any_of(labels_of(i), [&](std::int64_t label) { return label != stored.blank; });
  const double scale = 1.0 / static_cast<double>(std::max(counted, std::int64_t{1}));
  std::vector<double> each(static_cast<std::size_t>(size));
  constexpr std::int64_t entries_a_task = 1 << 14;
  const std::int64_t grain = std::max<std::int64_t>(1, entries_a_task * size / (gradient.numel() + 1));
  at::parallel_for(0, size, grain, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t i = first; i < last; ++i) {
      const auto length = static_cast<std::size_t>(ends[i + 1] - ends[i]);
      StoredSample<Real> sample({values + ends[i], length}, {classes + ends[i], length}, gradients + ends[i]);
      each[static_cast<std::size_t>(i)] = sample.run(i, labels_of(i), stored.blank, scale);
    }
  });
  return std::accumulate(each.begin(), each.end(), 0.0);
}

class StoredCrossEntropy : public torch::autograd::Function<StoredCrossEntropy> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& values,
                            const Stored& stored) {
    at::Tensor gradient = at::empty_like(values);
    double loss = 0.0;
    AT_DISPATCH_FLOATING_TYPES(values.scalar_type(), "stored_cross_entropy",
                               [&] { loss = stored_cross_entropy<scalar_t>(stored, gradient); });
    context->save_for_backward({gradient});
    return at::scalar_tensor(loss, values.options());
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    return {context->get_saved_variables().front().mul(gradients.front()), {}};
  }
};

/// The same by operators, wherever the tensors are. That a label is missing is not waited for: the loss is
/// NaN then.
inline at::Tensor stored_cross_entropy_by_operators(const Stored& stored) {
  const std::int64_t size = stored.labels.size(0), entries = stored.values.size(0);
  const at::Tensor sample = at::repeat_interleave(stored.ends.diff(), std::optional(entries));
  const at::Tensor highest =
      at::full({size}, -std::numeric_limits<double>::infinity(), stored.values.options())
          .scatter_reduce_(0, sample, stored.values.detach(), "amax");
  const at::Tensor shifted = stored.values.sub(highest.index_select(0, sample));
  const at::Tensor log_sum =
      at::zeros({size}, stored.values.options()).index_add(0, sample, at::exp(shifted)).log();
  const at::Tensor real = stored.blank ? stored.labels.ne(*stored.blank) : stored.labels.eq(stored.labels);
  const at::Tensor count = real.sum(1);
  const at::Tensor labels = at::where(real, stored.labels, -1);  // no class is that
  const at::Tensor hit = stored.classes.unsqueeze(1).eq(labels.index_select(0, sample)).any(1);
  const at::Tensor share =
      hit.to(stored.values.scalar_type()).div(count.clamp_min(1).index_select(0, sample));
  const at::Tensor log = shifted.sub(log_sum.index_select(0, sample));
  const at::Tensor sum = at::where(hit, log, 0.0).mul(share).sum().neg();
  const at::Tensor mean = sum.div(count.gt(0).sum().clamp_min(1));
  return at::where(hit.sum().eq(count.sum()), mean, std::numeric_limits<double>::quiet_NaN());
}

/// Differentiable in the values of `output`, [size, classes]; `labels`: [size] or [size, most].
inline at::Tensor stored_cross_entropy(const at::Tensor& output, const at::Tensor& labels,
                                       std::optional<std::int64_t> blank) {
  at::Tensor values = output.values();
  if (values.scalar_type() == at::kHalf || values.scalar_type() == at::kBFloat16)
    values = values.to(at::kFloat);
  const Stored stored{values.contiguous(), output.crow_indices().to(at::kLong).contiguous(),
                      output.col_indices().to(at::kLong).contiguous(),
                      (labels.dim() == 1 ? labels.unsqueeze(1) : labels).contiguous(), blank};
  if (!values.is_cpu()) return stored_cross_entropy_by_operators(stored);
  return StoredCrossEntropy::apply(stored.values, stored);
}

}  // namespace losses
