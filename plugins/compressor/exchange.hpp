// What compressors put on the wire, counted, and what is to be done once an exchange is through.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include <trainyard/ranks.hpp>

namespace compressors {

using trainyard::Exchange;
using trainyard::RankGroup;

/// Begins exchanges, and counts the bytes that this rank sends in them where they go around a ring of n ranks: of
/// each rank's part n - 1 copies are sent on; of a sum, of each n-th part, twice as many. So does Gloo, but for
/// reduce_scatter, which in LibTorch 2.11 sums all on all ranks: twice as much.
class Wire {
 public:
  std::unique_ptr<Exchange> all_reduce(RankGroup& group, const at::Tensor& tensor) {
    sent_ += 2.0 * others(group) * static_cast<double>(tensor.nbytes()) / group.size();
    return group.all_reduce(tensor);
  }
  std::unique_ptr<Exchange> all_gather(RankGroup& group, const at::Tensor& all, const at::Tensor& own) {
    sent_ += others(group) * static_cast<double>(own.nbytes());
    return group.all_gather(all, own);
  }
  std::unique_ptr<Exchange> reduce_scatter(RankGroup& group, const at::Tensor& own, const at::Tensor& all) {
    sent_ += others(group) * static_cast<double>(own.nbytes());
    return group.reduce_scatter(own, all);
  }

  /// Since it was last asked.
  double take() { return std::exchange(sent_, 0.0); }

 private:
  static double others(const RankGroup& group) { return group.size() - 1; }
  double sent_ = 0.0;
};

/// Waits for an exchange, then does the rest, on the thread that waits.
class Then final : public Exchange {
 public:
  Then(std::unique_ptr<Exchange> first, std::function<void()> rest)
      : first_(std::move(first)), rest_(std::move(rest)) {}
  void wait() override {
    first_->wait();
    rest_();
  }

 private:
  std::unique_ptr<Exchange> first_;
  std::function<void()> rest_;
};

inline std::unique_ptr<Exchange> then(std::unique_ptr<Exchange> first, std::function<void()> rest) {
  return std::make_unique<Then>(std::move(first), std::move(rest));
}

}  // namespace compressors
