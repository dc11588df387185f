// Monte Carlo dropout (Gal and Ghahramani, "Dropout as a Bayesian approximation", ICML 2016, section 4): in
// evaluations every batch is passed `samples` times with dropout on, and the mean of the class probabilities
// is the prediction. Its metrics, beside those of the evaluation of all units, are NAME/mc_accuracy and
// mc_nll of that mean, mc_single_accuracy, the mean over the passes (how much the ensemble gains), and in
// nats mc_entropy, how unsure the mean is, with mc_mutual_information, the part of it that comes from the
// passes' disagreement (Houlsby et al., 2011). Means over all items; passes are not under autocast.
#include <array>
#include <cmath>

#include <ATen/ops/argmax.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/log_sigmoid.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/logaddexp.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/neg.h>
#include <ATen/ops/stack.h>

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
    m.hook<&McDropout::begin>(Event::eval_start);
    m.hook<&McDropout::add_batch>(Event::eval_batch_end);
    m.hook<&McDropout::report>(Event::eval_end);
  }
  explicit McDropout(const Options& options) : options_(options) {}

  void begin(StepContext&) {
    sums_ = {};
    items_ = 0;
  }

  void add_batch(StepContext& context) {
    const Batch& batch = context.batch();
    if (batch.weight <= 0.0) return;
    if (!at::isIntegralType(batch.target.scalar_type(), /*includeBool=*/false))
      throw ConfigError(
          "hook mc_dropout averages probabilities of classes, but the targets of this data are no classes; "
          "leave the hook out");
    const at::Tensor target = batch.target.reshape(-1).to(at::kLong);
    at::Tensor mixture, entropies, hits;  // log of the sum of probabilities; sums over the passes
    for (std::int64_t sample = 0; sample < options_.samples; ++sample) {
      const at::Tensor log = log_probabilities(
          context.network().forward(batch, {.sampling = true,
                                            .step = static_cast<std::uint64_t>(context.clock().step),
                                            .micro = static_cast<std::uint32_t>(sample)}));
      const at::Tensor entropy = entropy_of(log).sum(), right = right_of(log, target);
      mixture = sample == 0 ? log : at::logaddexp(mixture, log);
      entropies = sample == 0 ? entropy : entropies.add_(entropy);
      hits = sample == 0 ? right : hits.add_(right);
    }
    const auto samples = static_cast<double>(options_.samples);
    mixture = mixture.sub(std::log(samples));
    const at::Tensor sums = at::stack({right_of(mixture, target), hits.div(samples),
                                       mixture.gather(1, target.unsqueeze(1)).sum().neg(),
                                       entropy_of(mixture).sum(), entropies.div(samples)})
                                .cpu();
    for (std::size_t i = 0; i < sums_.size(); ++i) sums_[i] += sums.const_data_ptr<double>()[i];
    items_ += target.numel();
  }

  void report(StepContext& context) {
    if (items_ == 0) return;
    for (double& sum : sums_) sum /= static_cast<double>(items_);
    const auto [accuracy, single_accuracy, nll, entropy, entropy_within] = sums_;
    const double between = entropy - entropy_within;
    const auto metric = [&](const char* name, double value) {
      host().metric(std::string(context.split()) + "/mc_" + name, value);
    };
    metric("accuracy", accuracy);
    metric("single_accuracy", single_accuracy);
    metric("nll", nll);
    metric("entropy", entropy);
    metric("mutual_information", between);
    constexpr double rounding = 1e-12;
    if (std::abs(between) > rounding || warned_) return;
    warned_ = true;
    host().log(LogLevel::warning,
               "all passes gave the same: dropout is off at this step, or the run has no [model.dropout]");
  }

 private:
  /// Of each item and class, [items, classes], double. A single score is the logit of class 1.
  static at::Tensor log_probabilities(const at::Tensor& output) {
    const at::Tensor score = output.to(at::kDouble);
    if (score.dim() > 1 && score.size(-1) > 1) return at::log_softmax(score.reshape({-1, score.size(-1)}), 1);
    const at::Tensor logit = score.reshape({-1, 1});
    return at::cat({at::log_sigmoid(at::neg(logit)), at::log_sigmoid(logit)}, 1);
  }

  static at::Tensor entropy_of(const at::Tensor& log) { return at::mul(at::exp(log), log).sum(1).neg(); }

  static at::Tensor right_of(const at::Tensor& log, const at::Tensor& target) {
    return at::argmax(log, 1).eq(target).sum().to(at::kDouble);
  }

  Options options_;
  std::array<double, 5> sums_{};  ///< over items: right, right of a pass, -log p, entropy, that of a pass
  std::int64_t items_ = 0;
  bool warned_ = false;
};

}  // namespace

TRAINYARD_PLUGIN(McDropout)
