// Monte Carlo dropout (Gal and Ghahramani, "Dropout as a Bayesian approximation", ICML 2016, section 4): in
// evaluations every batch is passed `samples` times with dropout on, and the mean of the passes is the
// prediction. Its metrics, beside those of the evaluation of all units, are means over all items:
//   classes, the mean is that of probabilities: NAME/mc_accuracy and mc_nll; mc_single_accuracy, the mean
//     over the passes, and mc_gain, by how much the ensemble is above it; in nats mc_entropy, how unsure the
//     mean is, and mc_mutual_information, the part of it that is the passes' disagreement (Houlsby et al.,
//     2011);
//   numbers: mc_mse, and mc_variance over the passes; one pass has the sum of both.
// The passes are not under autocast.
#include <cmath>
#include <vector>

#include <ATen/ops/argmax.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/log_sigmoid.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/logaddexp.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/neg.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/zeros_like.h>

#include <trainyard/context.hpp>
#include <trainyard/hook.hpp>
#include <trainyard/host.hpp>
#include <trainyard/network.hpp>

namespace {

using namespace trainyard;

class McDropout final : public Hook {
 public:
  struct Options {
    std::int64_t samples = 16;
  };
  static void describe(Manifest<Options>& m) {
    m.name("mc_dropout").version("1.0.0").summary("Evaluates the mean of passes with dropout on.");
    m.option("samples", &Options::samples, "passes of a batch").range(2, 10000);
    m.hook<&McDropout::check_run>(Event::model_ready);
    m.hook<&McDropout::begin>(Event::eval_start);
    m.hook<&McDropout::add_batch>(Event::eval_batch_end);
    m.hook<&McDropout::report>(Event::eval_end);
  }
  explicit McDropout(const Options& options) : options_(options) {}

  /// Refuses outputs that it cannot compare with the targets, while the run is built: `trainyard validate` builds it, too.
  void check_run(StepContext& context) {
    const std::vector<std::int64_t> shape = context.network().output_shape();
    for (const Batch& batch : host().batches("train", 1)) {
      std::int64_t numbers = batch.size();
      for (const std::int64_t length : shape) numbers *= length;
      if (!has_classes(batch))
        check_numbers(numbers, batch.target.numel());
      else
        check_items(shape.empty() ? numbers : numbers / shape.back(), batch.target.numel());
    }
  }

  void begin(StepContext&) {
    sums_.clear();
    items_ = 0;
  }

  void add_batch(StepContext& context) {
    const Batch& batch = context.batch();
    if (batch.weight <= 0.0) return;
    classes_ = has_classes(batch);
    const at::Tensor sums = (classes_ ? sums_of_classes(context) : sums_of_numbers(context)).cpu();
    sums_.resize(static_cast<std::size_t>(sums.numel()));
    for (std::size_t i = 0; i < sums_.size(); ++i) sums_[i] += sums.const_data_ptr<double>()[i];
    items_ += batch.target.numel();
  }

  void report(StepContext& context) {
    if (items_ == 0) return;
    for (double& sum : sums_) sum /= static_cast<double>(items_);
    const auto metric = [&](const char* name, double value) {
      host().metric(std::string(context.split()) + "/mc_" + name, value);
    };
    const double disagreement = classes_ ? sums_[3] - sums_[4] : sums_[1];
    if (classes_) {
      metric("accuracy", sums_[0]);
      metric("single_accuracy", sums_[1]);
      metric("gain", sums_[0] - sums_[1]);
      metric("nll", sums_[2]);
      metric("entropy", sums_[3]);
      metric("mutual_information", disagreement);
    } else {
      metric("mse", sums_[0]);
      metric("variance", disagreement);
    }
    constexpr double rounding = 1e-12;
    if (std::abs(disagreement) > rounding || warned_) return;
    warned_ = true;
    host().log(LogLevel::warning,
               "all passes gave the same: dropout is off at this step, or the run has no [model.dropout]");
  }

 private:
  static bool has_classes(const Batch& batch) {
    return at::isIntegralType(batch.target.scalar_type(), /*includeBool=*/false);
  }

  static void check_items(std::int64_t scored, std::int64_t targets) {
    if (scored != targets)
      throw ConfigError("hook mc_dropout: the model scores " + std::to_string(scored) +
                        " items, and there are " + std::to_string(targets) +
                        " targets; it takes one class an item, not several labels: leave it out");
  }
  static void check_numbers(std::int64_t given, std::int64_t targets) {
    if (given != targets)
      throw ConfigError("hook mc_dropout: the model gives " + std::to_string(given) + " numbers for " +
                        std::to_string(targets) +
                        " targets; with targets that are no classes it needs one for each");
  }

  at::Tensor pass(StepContext& context, std::int64_t sample) const {
    return context.network()
        .forward(context.batch(), {.sampling = true,
                                   .step = static_cast<std::uint64_t>(context.clock().step),
                                   .micro = static_cast<std::uint32_t>(sample)})
        .to(at::kDouble);
  }

  /// Over items: right, passes that are right, -log p, entropy of the mean, mean of the passes' entropies.
  at::Tensor sums_of_classes(StepContext& context) const {
    const at::Tensor target = context.batch().target.reshape(-1).to(at::kLong);
    at::Tensor mixture, entropies, hits;  // log of the sum of probabilities; sums over the passes
    for (std::int64_t sample = 0; sample < options_.samples; ++sample) {
      const at::Tensor log = log_probabilities(pass(context, sample));
      check_items(log.size(0), target.numel());
      const at::Tensor entropy = entropy_of(log), right = right_of(log, target);
      mixture = sample == 0 ? log : at::logaddexp(mixture, log);
      entropies = sample == 0 ? entropy : entropies.add_(entropy);
      hits = sample == 0 ? right : hits.add_(right);
    }
    const auto samples = static_cast<double>(options_.samples);
    mixture = mixture.sub(std::log(samples));
    return at::stack({right_of(mixture, target), hits.div(samples),
                      mixture.gather(1, target.unsqueeze(1)).sum().neg(), entropy_of(mixture),
                      entropies.div(samples)});
  }

  /// Over items: squared error of the mean, variance over the passes.
  at::Tensor sums_of_numbers(StepContext& context) const {
    const at::Tensor target = context.batch().target.reshape(-1).to(at::kDouble);
    at::Tensor mean = at::zeros_like(target), squares = at::zeros_like(target);
    for (std::int64_t sample = 0; sample < options_.samples; ++sample) {
      const at::Tensor output = pass(context, sample).reshape(-1);
      check_numbers(output.numel(), target.numel());
      // Welford's, which loses nothing where the variance is small.
      const at::Tensor off = at::sub(output, mean);
      mean.add_(off, 1.0 / static_cast<double>(sample + 1));
      squares.addcmul_(off, at::sub(output, mean));
    }
    return at::stack(
        {at::sub(mean, target).square().sum(), squares.sum().div(static_cast<double>(options_.samples))});
  }

  /// Of each item and class, [items, classes], double. A single score is the logit of class 1.
  static at::Tensor log_probabilities(const at::Tensor& output) {
    const at::Tensor score = output.to(at::kDouble);
    if (score.dim() > 1 && score.size(-1) > 1) return at::log_softmax(score.reshape({-1, score.size(-1)}), 1);
    const at::Tensor logit = score.reshape({-1, 1});
    return at::cat({at::log_sigmoid(at::neg(logit)), at::log_sigmoid(logit)}, 1);
  }

  static at::Tensor entropy_of(const at::Tensor& log) { return at::mul(at::exp(log), log).sum().neg(); }

  static at::Tensor right_of(const at::Tensor& log, const at::Tensor& target) {
    return at::argmax(log, 1).eq(target).sum().to(at::kDouble);
  }

  Options options_;
  bool classes_ = false;
  std::vector<double> sums_;  ///< of sums_of_classes or sums_of_numbers
  std::int64_t items_ = 0;
  bool warned_ = false;
};

}  // namespace

TRAINYARD_PLUGIN(McDropout)
