// Trains a classifier for all inputs near a sample, not for the sample alone: the loss becomes
//   kappa loss + (1 - kappa) cross entropy of the worst that bounds leave possible within eps of it,
// with margins m_j = lower bound of f_y - f_j in place of the differences of logits (Gowal et al. 2018, arXiv
// 1810.12715, equation 13). eps grows from 0, and kappa falls from 1 with it. With method = "crown_ibp" the
// margins are beta of those of CROWN and 1 - beta of those of intervals, beta = 1 - eps / its last value (Zhang et
// al., ICLR 2020, arXiv 1906.06316, equation 10).
#include <memory>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>

#include <trainyard/context.hpp>
#include <trainyard/duration.hpp>
#include <trainyard/hook.hpp>
#include <trainyard/host.hpp>
#include <trainyard/network.hpp>

#include "bounds.hpp"
#include "ramp.hpp"

enum class Method : std::uint8_t { ibp, crown_ibp };
template <>
struct trainyard::Words<Method> {
  static constexpr std::string_view words[] = {"ibp", "crown_ibp"};
};

namespace {

using namespace trainyard;
using namespace certified_loss;

/// For the length of a scope, no autocast: bounds are of the weights as they are, also where the run's passes are not.
class FullPrecision {
 public:
  explicit FullPrecision(at::DeviceType device)
      : device_(device), was_(at::autocast::is_autocast_enabled(device)) {
    at::autocast::set_autocast_enabled(device_, false);
  }
  ~FullPrecision() { at::autocast::set_autocast_enabled(device_, was_); }
  FullPrecision(const FullPrecision&) = delete;
  FullPrecision& operator=(const FullPrecision&) = delete;

 private:
  at::DeviceType device_;
  bool was_;
};

class CertifiedLoss final : public Hook {
 public:
  struct Options {
    Method method = Method::ibp;
    double eps = 0.1;
    std::vector<double> mean, std, clip = {0.0, 1.0};
    double kappa = 0.5, mid = 0.4;
    Duration start{5, Duration::Unit::percent}, length{40, Duration::Unit::percent};
  };
  static void describe(Manifest<Options>& m) {
    m.name("certified_loss").version("1.0.0").summary("Trains for all inputs near a sample, by bounds.");
    m.needs("graph").needs("model").needs("grads");  // the bounds reach for each weight
    m.conflicts("gpt").conflicts("lstm").conflicts("dlrm");
    m.needs("model.activation != gelu").needs("model.dropout.type != multi_sample");
    m.option("method", &Options::method,
             "intervals, or at first the margins of forms that are substituted back, which are tighter");
    m.option("eps", &Options::eps, "largest change of an input in the end, before the data's mean and std")
        .min(0);
    m.option("mean", &Options::mean, "the data's, which it subtracts: one, or one a channel; empty: 0");
    m.option("std", &Options::std, "the data's, by which it then divides; empty: 1");
    m.option("clip", &Options::clip,
             "smallest and largest input that there is, before mean and std; empty: any");
    m.option("kappa", &Options::kappa, "weight of the run's own loss in the end; it begins with 1")
        .range(0.0, 1.0);
    m.option("start", &Options::start, "steps with eps = 0, in which the run's loss is alone");
    m.option("length", &Options::length, "steps in which eps grows");
    m.option("mid", &Options::mid, "share of them in which it does as the fourth power; then it is linear")
        .range(0.01, 1.0);
    m.hook<&CertifiedLoss::check_run>(Event::model_ready);
    // Before what adds to the loss as it is.
    m.hook<&CertifiedLoss::replace_loss>(Event::after_loss).writes(Region::outputs).priority(10);
    m.hook<&CertifiedLoss::report>(Event::batch_end);
  }
  explicit CertifiedLoss(const Options& options) : options_(options) {}

  /// Refuses networks and data that it has no bounds of, while the run is built: `trainyard validate` builds it, too.
  void check_run(StepContext& context) {
    if (!options_.clip.empty() && (options_.clip.size() != 2 || !(options_.clip[0] < options_.clip[1])))
      throw ConfigError(
          "hook certified_loss: clip is the smallest and the largest input that there is, or empty");
    for (const double each : options_.std)
      if (!(each > 0.0)) throw ConfigError("hook certified_loss: std has to be above 0");
    ramp_ = {.start = steps("start", options_.start, context),
             .length = std::max<std::int64_t>(1, steps("length", options_.length, context)),
             .mid = options_.mid};
    for (const Batch& batch : host().batches("train", 1)) {
      check(batch, context.network().output_shape());
      around(batch.input(), options_.eps);
    }
    refresh(context.network());
  }

  void replace_loss(StepContext& context) {
    if (context.evaluating()) return;
    refresh(context.network());
    const Batch& batch = context.batch();
    check(batch, context.output().sizes().slice(1));
    const double share = ramp_.at(context.clock().step);
    if (share == 0.0) return;
    const FullPrecision full(batch.input().device().type());
    const at::Tensor target = batch.target.to(at::kLong);
    const Box output = bounds_->intervals(around(batch.input(), options_.eps * share));
    // Of the target itself the margin is 0.
    at::Tensor margins =
        (output.lower.gather(1, target.unsqueeze(1)) - output.upper).scatter(1, target.unsqueeze(1), 0.0);
    if (options_.method == Method::crown_ibp && share < 1.0)
      margins = (1.0 - share) * bounds_->margins(target) + share * margins;
    const at::Tensor worst = at::cross_entropy_loss(-margins, target);
    at::Tensor& loss = context.mutable_loss();
    const double kappa = kappa_at(share);
    loss = kappa * loss + (1.0 - kappa) * worst;
  }

  void report(StepContext& context) {
    const double share = ramp_.at(context.clock().step);
    host().metric("certified_eps", options_.eps * share);
    host().metric("certified_kappa", kappa_at(share));
  }

 private:
  double kappa_at(double share) const { return 1.0 - (1.0 - options_.kappa) * share; }

  static std::int64_t steps(const char* name, const Duration& duration, const StepContext& context) {
    if (const auto count = duration.steps(context.scale())) return *count;
    throw ConfigError(std::string("hook certified_loss: ") + name + " = \"" + duration.text() +
                      "\" cannot be converted to steps of this run; use ep or ba");
  }

  /// A network that takes the place of another is made while that one lives: its graph is at another address.
  void refresh(Network& network) {
    const Graph* const graph = network.graph();
    if (graph == nullptr)
      throw ConfigError("hook certified_loss reads a model as a graph, and this one has none; leave it out");
    if (bounds_ == nullptr || &bounds_->graph() != graph) bounds_ = std::make_unique<Bounds>(*graph);
  }

  /// `output`: the shape of what the network gives for a sample.
  static void check(const Batch& batch, at::IntArrayRef output) {
    if (!batch.target.defined() || batch.target.dim() != 1 || at::isFloatingType(batch.target.scalar_type()))
      throw ConfigError(
          "hook certified_loss bounds classes, and the data has no class a sample; leave it out");
    if (output.size() != 1 || output.front() < 2)
      throw ConfigError(
          "hook certified_loss needs an output for each class, [batch, classes]; give the model two or more");
    if (batch.inputs.size() != 1 || !at::isFloatingType(batch.input().scalar_type()))
      throw ConfigError(
          "hook certified_loss needs data whose input is numbers that change a little; leave it out");
  }

  /// What may be given in place of a sample, as the network is given it.
  Box around(const at::Tensor& input, double eps) const {
    const at::Tensor x = input.detach();
    const at::Tensor mean = spread("mean", options_.mean, 0.0, x), std = spread("std", options_.std, 1.0, x);
    Box box{x - eps / std, x + eps / std};
    if (options_.clip.empty()) return box;
    // The data's own rounding may leave a sample just outside of what there is.
    box.lower = at::minimum(x, at::maximum(box.lower, (options_.clip[0] - mean) / std));
    box.upper = at::maximum(x, at::minimum(box.upper, (options_.clip[1] - mean) / std));
    return box;
  }

  /// One number a channel, which is what comes behind the batch.
  static at::Tensor spread(const char* name, std::vector<double> given, double fallback,
                           const at::Tensor& x) {
    if (given.empty()) given = {fallback};
    if (given.size() != 1 && static_cast<std::int64_t>(given.size()) != x.size(1))
      throw ConfigError("hook certified_loss: " + std::string(name) + " has " + std::to_string(given.size()) +
                        " numbers, needs 1 or one a channel (" + std::to_string(x.size(1)) + ")");
    std::vector<std::int64_t> shape(static_cast<std::size_t>(x.dim()), 1);
    shape[1] = static_cast<std::int64_t>(given.size());
    return at::tensor(given, x.options()).reshape(shape);
  }

  Options options_;
  Ramp ramp_;
  std::unique_ptr<Bounds> bounds_;
};

}  // namespace

TRAINYARD_PLUGIN(CertifiedLoss)
