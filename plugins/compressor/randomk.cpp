// Random k (Stich et al., NeurIPS 2018): all ranks send the same elements, drawn anew at every step from a
// stream that they share, so that only values go over the wire, and are summed on the way.
#include <ATen/ops/empty.h>

#include "pairs.hpp"
#include "with_feedback.hpp"

namespace {

using namespace compressors;

/// k of `count` numbers, each as likely, ascending: Floyd's way (Bentley and Floyd, CACM 1987).
std::vector<std::int32_t> draw(std::int64_t count, std::int64_t k, const RandomStream& stream) {
  std::vector<bool> drawn(static_cast<std::size_t>(count));
  for (std::int64_t last = count - k; last < count; ++last) {
    const auto any = static_cast<std::size_t>(
        stream.below(static_cast<std::uint64_t>(last), static_cast<std::uint64_t>(last) + 1));
    drawn[drawn[any] ? static_cast<std::size_t>(last) : any] = true;
  }
  std::vector<std::int32_t> indices;
  indices.reserve(static_cast<std::size_t>(k));
  for (std::size_t i = 0; i < drawn.size(); ++i)
    if (drawn[i]) indices.push_back(static_cast<std::int32_t>(i));
  return indices;
}

class RandomK final : public WithFeedback<BucketCompressor> {
 public:
  struct Options : BucketOptions {
    double density = 0.01;
    bool error_feedback = true;
  };
  static void describe(Manifest<Options>& m) {
    m.name("randomk").version("1.0.0").summary("Sends random elements of gradients, the same of all ranks.");
    BucketOptions::describe(m);
    m.option("density", &Options::density, "share of a bucket's elements that is sent; one at least")
        .above(0.0)
        .max(1.0);
    m.option(
        "error_feedback", &Options::error_feedback,
        "add to a gradient what was not sent of those before; else what is sent is divided by the density, "
        "for the mean over all draws to be the gradient");
    m.hook<&RandomK::stepped>(Event::after_step);
    m.hook<&RandomK::saving>(Event::before_checkpoint).sink();
    m.hook<&RandomK::ended>(Event::fit_end).sink();
  }
  explicit RandomK(const Options& options)
      : WithFeedback(options.error_feedback, options), options_(options) {}

  void stepped(StepContext&) { take_step(); }
  void saving(StepContext& context) { note_checkpoint(context); }
  void ended(StepContext& context) { tell_kept_back(context); }

 protected:
  std::unique_ptr<Exchange> compress(std::size_t bucket, const at::Tensor& gradients,
                                     std::int64_t step) override {
    const std::int64_t count = gradients.numel(), k = share_of(count, options_.density);
    const std::vector<std::int32_t> indices = draw(count, k, random(bucket, step));
    const at::Tensor acc = accumulated(bucket, gradients);
    const float factor = options_.error_feedback ? 1.0F : static_cast<float>(count) / static_cast<float>(k);
    const at::Tensor values = at::empty({k}, gradients.options());
    const std::span<float> from = floats(acc), to = floats(values);
    for (std::size_t j = 0; j < indices.size(); ++j)
      to[j] = from[static_cast<std::size_t>(indices[j])] * factor;
    kernels::zero_at(indices, from);
    return then(wire_->all_reduce(values), [values, indices, gradients] {
      gradients.zero_();
      kernels::scatter_add(floats(values), indices, floats(gradients));
    });
  }

 private:
  const Options options_;
};

}  // namespace

TRAINYARD_PLUGIN(RandomK)
