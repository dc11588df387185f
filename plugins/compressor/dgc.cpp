// Deep gradient compression (Lin et al., ICLR 2018, sections 3.2 and 3.3): momentum comes before compression,
//   u = m u + g;  v = v + u;  I = the k largest of v;  send v[I];  v[I] = 0;  u[I] = 0
// so that what waits gathers the momentum that it would have had. The optimizer must not have one of its own.
// Ahead of the start u itself is summed, which is momentum over the summed gradients.
#include <cmath>

#include <ATen/ops/linalg_vector_norm.h>

#include <trainyard/context.hpp>
#include <trainyard/optimizer.hpp>

#include "sparse.hpp"

namespace {

using namespace compressors;

class Dgc final : public PairCompressor {
 public:
  struct Options : DensityOptions {
    double momentum = 0.9;
    double clip = 0.0;
    std::int64_t warmup_epochs = 4;

    Options() { density = 0.001; }
  };
  static void describe(Manifest<Options>& m) {
    m.name("dgc").version("1.0.0").summary("Sends the largest sums of momentum: deep gradient compression.");
    DensityOptions::describe(m);
    m.needs("no momentum");
    m.option("momentum", &Options::momentum, "share of u kept in the next; the optimizer's must be 0")
        .min(0.0)
        .below(1.0);
    m.option("clip", &Options::clip,
             "norm that the gradient of a bucket may have on a rank, times the root of their number; 0: any")
        .min(0.0);
    m.option("warmup_epochs", &Options::warmup_epochs,
             "epochs of falling density: of W the n-th, from 1, has density^(n / (W + 1))")
        .range(0, 1000000);
    m.hook<&Dgc::check>(Event::fit_start);
    m.hook<&Dgc::stepped>(Event::after_step);
    m.hook<&Dgc::saving>(Event::before_checkpoint).sink();
    m.hook<&Dgc::ended>(Event::fit_end).sink();
  }
  explicit Dgc(const Options& options)
      : PairCompressor(options, {.method = kernels::Method::radix}), options_(options) {}

  void check(StepContext& context) {
    if (context.optimizer().has_momentum())
      throw ConfigError(
          "distributed.compressor dgc has the momentum, and the optimizer has one of its own; take optimizer "
          "sgd with momentum = 0, or another compressor");
  }

  void stepped(StepContext&) { take_step(); }
  void saving(StepContext& context) { note_checkpoint(context); }
  void ended(StepContext& context) { tell_kept_back(context); }

  void open(Ranks& ranks, std::span<const BucketPlan> buckets, const RunScale& scale) override {
    PairCompressor::open(ranks, buckets, scale);
    steps_per_epoch_ = std::max<std::int64_t>(scale.steps_per_epoch, 1);
    std::vector<std::int64_t> elements;
    for (const BucketPlan& bucket : buckets) elements.push_back(bucket.elements);
    velocities_.open(elements);
    sums_.open(elements);
    keep(velocities_);
    keep(sums_);
  }

  void save(StateWriter& state) const override {
    velocities_.save(state);
    sums_.save(state);
  }
  void load(const StateReader& state) override {
    velocities_.load(state.state());
    sums_.load(state.state());
  }
  void load_all(std::span<const State> saved) override {
    velocities_.load_all(saved, ranks());
    sums_.load_all(saved, ranks());
  }

 protected:
  std::unique_ptr<Exchange> sum(std::size_t bucket, const at::Tensor& gradients) override {
    gradients.copy_(velocity(bucket, gradients));
    return wire_->all_reduce(gradients);
  }

  std::unique_ptr<Exchange> compress(std::size_t bucket, const at::Tensor& gradients,
                                     std::int64_t step) override {
    const at::Tensor& u = velocity(bucket, gradients);
    const at::Tensor& v = sums_.add(bucket, u);
    const std::int64_t k = share_of(gradients.numel(), density(step));
    std::unique_ptr<Exchange> exchange = send(v, k, 0, gradients);
    kernels::zero_at(pairs_.indices(), floats(u));
    return exchange;
  }

 private:
  const at::Tensor& velocity(std::size_t bucket, const at::Tensor& gradients) {
    if (options_.clip > 0.0) {
      const double most = options_.clip / std::sqrt(static_cast<double>(ranks().size()));
      const double norm = at::linalg_vector_norm(gradients).item<double>();
      if (norm > most) gradients.mul_(most / norm);
    }
    return velocities_.add(bucket, gradients, options_.momentum);
  }

  /// Of the warm-up, then its own: of 0.1 % after four epochs 25, 6.3, 1.6 and 0.4 %.
  double density(std::int64_t step) const {
    const std::int64_t epoch = (step - start()) / steps_per_epoch_;
    if (epoch >= options_.warmup_epochs) return options_.density;
    return std::pow(options_.density,
                    static_cast<double>(epoch + 1) / static_cast<double>(options_.warmup_epochs + 1));
  }

  const Options options_;
  std::int64_t steps_per_epoch_ = 1;
  Residuals velocities_{"velocity"}, sums_{"residual"};
};

}  // namespace

TRAINYARD_PLUGIN(Dgc)
