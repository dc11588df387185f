// What compressors put on the wire, counted.
#pragma once

#include <memory>
#include <utility>

#include <trainyard/ranks.hpp>

namespace compressors {

using trainyard::Exchange;
using trainyard::RankGroup;

/// A group, and the bytes that this rank sends in it where exchanges go around a ring of n ranks: of each rank's
/// part n - 1 copies are sent on; of a sum, of each n-th part, twice as many. So does Gloo, but for
/// reduce_scatter, which in LibTorch 2.11 sums all on all ranks: twice as much.
class CountedGroup final : public RankGroup {
 public:
  explicit CountedGroup(RankGroup& group) : group_(&group) {}  ///< which outlives it
  explicit CountedGroup(std::unique_ptr<RankGroup> group) : own_(std::move(group)), group_(own_.get()) {}

  int rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }
  /// For what is not to be counted.
  RankGroup& group() { return *group_; }

  std::unique_ptr<Exchange> all_reduce(const at::Tensor& tensor) override {
    sent_ += 2.0 * others() * static_cast<double>(tensor.nbytes()) / size();
    return group_->all_reduce(tensor);
  }
  std::unique_ptr<Exchange> all_gather(const at::Tensor& all, const at::Tensor& own) override {
    sent_ += others() * static_cast<double>(own.nbytes());
    return group_->all_gather(all, own);
  }
  std::unique_ptr<Exchange> reduce_scatter(const at::Tensor& own, const at::Tensor& all) override {
    sent_ += others() * static_cast<double>(own.nbytes());
    return group_->reduce_scatter(own, all);
  }
  std::unique_ptr<Exchange> broadcast(const at::Tensor& tensor, int root) override {
    sent_ += others() * static_cast<double>(tensor.nbytes()) / size();  // all but the last send it on
    return group_->broadcast(tensor, root);
  }

  /// Since it was last asked.
  double take() { return std::exchange(sent_, 0.0); }

 private:
  double others() const { return group_->size() - 1; }

  std::unique_ptr<RankGroup> own_;  ///< null: it is another's
  RankGroup* group_;
  double sent_ = 0.0;
};

}  // namespace compressors
