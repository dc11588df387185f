// Error feedback (Seide et al., INTERSPEECH 2014; Karimireddy et al., ICML 2019): what of a gradient was not
// sent is added to the next one.
#pragma once

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/add.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>

#include <trainyard/error.hpp>
#include <trainyard/ranks.hpp>
#include <trainyard/state.hpp>

namespace compressors {

using namespace trainyard;

/// What of each bucket a rank keeps back: as many floats as it has elements. What a step makes of it counts once
/// the optimizer has taken the step: one that is left out, or is repeated, leaves no trace, whatever was sent.
class Residuals {
 public:
  /// `name`: of its tensors in a state.
  explicit Residuals(std::string name = waiting) : name_(std::move(name)) {}

  /// Of so many elements each, nothing yet.
  void open(const std::vector<std::int64_t>& elements) {
    of_.clear();
    next_.clear();
    for (const std::int64_t count : elements)
      for (std::vector<at::Tensor>* each : {&of_, &next_})
        each->push_back(at::zeros({count}, at::TensorOptions(at::kFloat)));
    begun_.assign(elements.size(), false);
  }
  /// As the last step that was taken has left it.
  at::Tensor& operator[](std::size_t bucket) { return of_[bucket]; }

  /// What the step under way is to leave of a bucket; the caller goes on to write it. First `factor` times what
  /// there was, plus the gradients.
  const at::Tensor& add(std::size_t bucket, const at::Tensor& gradients, double factor = 1.0) {
    if (factor == 1.0)
      at::add_out(next(bucket), of_[bucket], gradients);
    else
      at::mul_out(next(bucket), of_[bucket], at::scalar_tensor(factor)).add_(gradients);
    return next_[bucket];
  }
  /// The same, first what there was.
  const at::Tensor& change(std::size_t bucket) { return next(bucket).copy_(of_[bucket]); }
  /// The same, nothing.
  void clear(std::size_t bucket) { next(bucket).zero_(); }

  /// A step begins, or the last one again: what was begun and not taken is none.
  void begin() { begun_.assign(begun_.size(), false); }
  /// The optimizer has taken the step.
  void take() {
    for (std::size_t bucket = 0; bucket < of_.size(); ++bucket)
      if (begun_[bucket]) std::swap(of_[bucket], next_[bucket]);
    begin();
  }
  std::size_t size() const { return of_.size(); }
  /// The sum of the squares of what waits to be sent; 0 of what is kept for another reason.
  double squares() const {
    double sum = 0.0;
    for (std::size_t bucket = 0; name_ == waiting && bucket < of_.size(); ++bucket)
      sum += std::pow(at::linalg_vector_norm(of_[bucket]).item<double>(), 2.0);
    return sum;
  }

  std::string key(std::size_t bucket) const { return name_ + "/" + std::to_string(bucket); }

  void save(StateWriter& state) const {
    for (std::size_t bucket = 0; bucket < of_.size(); ++bucket) state.tensor(key(bucket), of_[bucket]);
  }
  void load(const State& state) {
    for (std::size_t bucket = 0; bucket < of_.size(); ++bucket) of_[bucket].copy_(saved(state, bucket));
  }
  /// Of ranks that may have been more or fewer: this one takes what those had whose number is its own, plus
  /// multiples of how many there are now. So of as many each takes its own; more ranks share out what there
  /// was, to the bit; of fewer each adds up several, in float.
  void load_all(std::span<const State> states, const RankGroup& ranks) {
    for (at::Tensor& each : of_) each.zero_();
    for (auto from = static_cast<std::size_t>(ranks.rank()); from < states.size();
         from += static_cast<std::size_t>(ranks.size()))
      for (std::size_t bucket = 0; bucket < of_.size(); ++bucket)
        of_[bucket].add_(saved(states[from], bucket));
  }

  /// Throws DataError where it does not fit.
  const at::Tensor& saved(const State& state, std::size_t bucket) const {
    const auto found = state.tensors.find(key(bucket));
    const std::int64_t expected = of_[bucket].numel();
    if (found == state.tensors.end() || found->second.numel() != expected ||
        found->second.scalar_type() != at::kFloat)
      throw DataError(
          "distributed.compressor: the checkpoint's " + key(bucket) + " has " +
          (found == state.tensors.end() ? "nothing" : std::to_string(found->second.numel()) + " elements") +
          ", expected " + std::to_string(expected) +
          " floats; keep distributed.bucket_cap_mb and min_compress_elements as they were");
    return found->second;
  }

 private:
  at::Tensor& next(std::size_t bucket) {
    begun_[bucket] = true;
    return next_[bucket];
  }

  static constexpr const char* waiting = "residual";

  const std::string name_;
  std::vector<at::Tensor> of_, next_;
  std::vector<bool> begun_;  ///< by the step under way
};

}  // namespace compressors
