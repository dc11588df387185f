// Plain error feedback, where an option asks for it: acc = g + e; what of acc was not sent becomes e.
#pragma once

#include <span>
#include <vector>

#include "bucket_compressor.hpp"
#include "residuals.hpp"

namespace compressors {

/// A compressor with residuals of all of its buckets, which are its state.
template <class Base>
class WithFeedback : public Base {
 public:
  /// `feedback`: the option; the rest is for the base.
  template <class... Arguments>
  explicit WithFeedback(bool feedback, Arguments&&... arguments)
      : Base(std::forward<Arguments>(arguments)...), feedback_(feedback) {}

  void open(Ranks& ranks, std::span<const BucketPlan> buckets, const RunScale& scale) override {
    Base::open(ranks, buckets, scale);
    std::vector<std::int64_t> elements;
    if (feedback_)
      for (const BucketPlan& bucket : buckets) elements.push_back(bucket.elements);
    residuals_.open(elements);
    this->keep(residuals_);
  }

  void save(StateWriter& state) const override { residuals_.save(state); }
  void load(const StateReader& state) override { residuals_.load(state.state()); }
  void load_all(std::span<const State> saved) override { residuals_.load_all(saved, this->ranks()); }

 protected:
  /// acc, to take out of what is sent: the residual, with the gradients added; without feedback these themselves.
  at::Tensor accumulated(std::size_t bucket, const at::Tensor& gradients) {
    return feedback_ ? residuals_.add(bucket, gradients) : gradients;
  }

 private:
  const bool feedback_;
  Residuals residuals_;
};

}  // namespace compressors
