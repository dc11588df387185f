// Error feedback (Seide et al., INTERSPEECH 2014; Karimireddy et al., ICML 2019): what of a gradient was not
// sent is added to the next one.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/zeros.h>

#include <trainyard/error.hpp>
#include <trainyard/ranks.hpp>
#include <trainyard/state.hpp>

namespace compressors {

using namespace trainyard;

/// What of each bucket a rank keeps back: as many floats as it has elements.
class Residuals {
 public:
  /// `name`: of its tensors in a state.
  explicit Residuals(std::string name = "residual") : name_(std::move(name)) {}

  /// Of so many elements each, nothing yet.
  void open(const std::vector<std::int64_t>& elements) {
    of_.clear();
    for (const std::int64_t count : elements)
      of_.push_back(at::zeros({count}, at::TensorOptions(at::kFloat)));
  }
  at::Tensor& operator[](std::size_t bucket) { return of_[bucket]; }
  std::size_t size() const { return of_.size(); }

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
  const std::string name_;
  std::vector<at::Tensor> of_;
};

}  // namespace compressors
