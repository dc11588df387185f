// What all compressors have: which gradients they take and from which step on, sums as they are before it, and
// the count of what goes over the wire.
#pragma once

#include <cmath>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <trainyard/compressor.hpp>
#include <trainyard/context.hpp>
#include <trainyard/helpers/nodes.hpp>
#include <trainyard/host.hpp>

#include "exchange.hpp"
#include "residuals.hpp"

namespace compressors {

using namespace trainyard;

struct BucketOptions {
  Duration start{0, Duration::Unit::steps};
  std::int64_t min_compress_elements = 1024;

  template <class Options>
  static void describe(Manifest<Options>& m) {
    m.needs("distributed").needs("fp32").needs("no divides_network").needs("run.device = cpu");
    m.option("start", &Options::start, "until then gradients are summed as they are");
    m.option("min_compress_elements", &Options::min_compress_elements,
             "a parameter of fewer elements is left to the host, which sums it as it is")
        .min(1);
  }
};

class BucketCompressor : public Compressor {
 public:
  explicit BucketCompressor(const BucketOptions& options) : options_(options) {}

  bool takes(const NamedTensor& parameter) const override {
    return parameter.tensor.numel() >= options_.min_compress_elements;
  }

  void open(Ranks& ranks, std::span<const BucketPlan> buckets, const RunScale& scale) override {
    if (const std::string& device = host().run().device; device != "cpu")
      throw ConfigError("distributed.compressor works on gradients in the CPU's memory, and the run is on " +
                        device + "; leave the section out, or take run.device = \"cpu\"");
    const std::optional<std::int64_t> start = options_.start.steps(scale);
    if (!start)
      throw ConfigError("distributed.compressor.start = \"" + options_.start.text() +
                        "\" is no number of steps of this run; give it in ba, ep or sp");
    start_ = *start;
    ranks_ = &ranks;
    wire_.emplace(ranks);
    buckets_.assign(buckets.begin(), buckets.end());
    kept_.clear();
  }

  std::unique_ptr<Exchange> reduce(std::size_t bucket, const at::Tensor& gradients, std::int64_t step) final {
    if (bucket == 0)
      for (Residuals* each : kept_) each->begin();
    std::unique_ptr<Exchange> exchange =
        step < start_ ? sum(bucket, gradients) : compress(bucket, gradients, step);
    if (bucket + 1 < buckets_.size()) return exchange;
    return then(std::move(exchange), [this] { report(); });
  }

  /// Of one without state.
  void load_all(std::span<const State>) override {}

 protected:
  /// From the start on.
  virtual std::unique_ptr<Exchange> compress(std::size_t bucket, const at::Tensor& gradients,
                                             std::int64_t step) = 0;
  /// Until then.
  virtual std::unique_ptr<Exchange> sum(std::size_t, const at::Tensor& gradients) {
    return wire_->all_reduce(gradients);
  }
  /// The last bucket of a step is through; loop thread.
  virtual void report() { host().metric("wire_bytes", wire_->take()); }

  /// Of those that keep something back, ahead of the first step: whether a step was taken is told to it.
  void keep(Residuals& what) { kept_.push_back(&what); }
  /// Of their hook at after_step.
  void take_step() {
    for (Residuals* each : kept_) each->take();
  }
  /// Called by their hook at before_checkpoint.
  void note_checkpoint(const StepContext& context) { saved_at_ = context.clock().step; }
  /// Called by their hook at fit_end: says that what they keep back is in no update of the weights, and whether the run
  /// has a checkpoint of its end from which a longer run goes on with it.
  void tell_kept_back(const StepContext& context) {
    double squares = 0.0;
    for (const Residuals* each : kept_) squares += each->squares();
    if (squares == 0.0) return;
    const bool saved = saved_at_ == context.clock().step;
    host().log(LogLevel::info, "gradients of norm " + std::to_string(std::sqrt(squares)) +
                                   " are kept back: " +
                                   (saved ? "the last checkpoint has them, the weights have not"
                                          : "neither the weights nor a checkpoint have them"));
  }

  Ranks& ranks() const { return *ranks_; }
  const std::vector<BucketPlan>& buckets() const { return buckets_; }
  std::int64_t start() const { return start_; }
  /// Of a step, the same on all ranks.
  RandomStream random(std::size_t bucket, std::int64_t step) const {
    return host().random("bucket/" + std::to_string(bucket)).at(static_cast<std::uint64_t>(step));
  }

  std::optional<CountedGroup> wire_;  ///< all ranks, from open() on

 private:
  const BucketOptions options_;
  Ranks* ranks_ = nullptr;
  std::vector<BucketPlan> buckets_;
  std::vector<Residuals*> kept_;
  std::int64_t start_ = 0;
  std::int64_t saved_at_ = -1;  ///< step
};

}  // namespace compressors
