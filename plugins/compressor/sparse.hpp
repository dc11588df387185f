// Compressors that send the largest elements of what a rank has, and keep the rest for later:
//   acc = g + e;  I = the k largest of acc;  send acc[I];  e = acc with I zeroed
// Every rank gets the pairs of all ranks, and adds them up in their order.
#pragma once

#include <memory>
#include <string>

#include <ATen/ops/empty.h>

#include "pairs.hpp"
#include "with_feedback.hpp"

namespace compressors {

/// How densely gradients are sent.
struct DensityOptions : BucketOptions {
  double density = 0.01;
  ValueType value_dtype = ValueType::fp32;

  template <class Options>
  static void describe(Manifest<Options>& m) {
    BucketOptions::describe(m);
    m.option("density", &Options::density, "share of a bucket's elements that is sent; one at least")
        .above(0.0)
        .max(1.0);
    m.option("value_dtype", &Options::value_dtype, "of the values that are sent, beside indices of 32 bits");
  }
};

struct FeedbackOptions : DensityOptions {
  bool error_feedback = true;

  template <class Options>
  static void describe(Manifest<Options>& m) {
    DensityOptions::describe(m);
    m.option("error_feedback", &Options::error_feedback,
             "add to a gradient what was not sent of those before");
  }
};

/// How the largest are found.
struct SelectionOptions : FeedbackOptions {
  kernels::Method method = kernels::Method::mstopk;
  int samples = 30;
  kernels::Start bisect_from = kernels::Start::mean;

  template <class Options>
  static void describe(Manifest<Options>& m) {
    FeedbackOptions::describe(m);
    m.option("method", &Options::method,
             "mstopk: a threshold by bisection, about the largest; bitsearch, radix, exact: the largest");
    m.option("samples", &Options::samples, "steps of mstopk's bisection").range(1, 1000);
    m.option("bisect_from", &Options::bisect_from,
             "where mstopk begins: the mean of magnitudes is right up to a density of about a third");
  }
  kernels::Selection selection() const {
    return {.method = method, .samples = samples, .start = bisect_from};
  }
};

/// How the selections of a step went: shares of what was sent that had to be, and among which it was chosen.
inline void report_selections(Host& host, Pairs& pairs) {
  const Pairs::Statistics found = pairs.take_statistics();
  if (found.selections == 0) return;
  const auto selected = static_cast<double>(found.selected);
  host.metric("sure", static_cast<double>(found.sure) / selected);
  host.metric("candidates", static_cast<double>(found.candidates) / selected);
  host.metric("passes", static_cast<double>(found.passes) / static_cast<double>(found.selections));
  if (found.non_finite > 0) host.metric("non_finite", static_cast<double>(found.non_finite));
}

/// Sends pairs to all ranks; what is left is up to the plugin.
class PairCompressor : public BucketCompressor {
 public:
  PairCompressor(const DensityOptions& options, const kernels::Selection& how)
      : BucketCompressor(options), pairs_(how, options.value_dtype) {}

 protected:
  /// Takes the k largest out of `from`, which may be `gradients`; these become the sum of what the ranks took.
  std::unique_ptr<Exchange> send(const at::Tensor& from, std::int64_t k, std::uint64_t random,
                                 const at::Tensor& gradients) {
    const at::Tensor own = pairs_.take(from, k, random);
    const at::Tensor all = at::empty({own.numel() * ranks().size()}, own.options());
    return then(wire_->all_gather(all, own), [this, all, k, gradients] {
      gradients.zero_();
      pairs_.add(all, k, gradients);
    });
  }

  void report() override {
    BucketCompressor::report();
    report_selections(host(), pairs_);
  }

  Pairs pairs_;
};

class SparseCompressor : public WithFeedback<PairCompressor> {
 public:
  SparseCompressor(const FeedbackOptions& options, const kernels::Selection& how)
      : WithFeedback(options.error_feedback, options, how), density_(options.density) {}

 protected:
  std::unique_ptr<Exchange> compress(std::size_t bucket, const at::Tensor& gradients,
                                     std::int64_t step) override {
    const std::int64_t k = share_of(gradients.numel(), density_);
    return send(accumulated(bucket, gradients), k, random(bucket, step).bits(0), gradients);
  }

 private:
  const double density_;
};

}  // namespace compressors
