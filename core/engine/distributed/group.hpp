// Collectives among some ranks, by c10d: one backend for tensors in CPU memory, another for tensors on a
// device.
#pragma once

#include <deque>
#include <functional>
#include <memory>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <trainyard/ranks.hpp>

#include "core/engine/distributed/lookout.hpp"
#include "core/engine/distributed/under_way.hpp"

namespace trainyard::distributed {

using Backend = c10::intrusive_ptr<c10d::Backend>;

class Group final : public RankGroup {
 public:
  /// `make_device` is called at the first exchange of a tensor that is not in CPU memory. `others` and
  /// `under_way` must outlive the use of the group, if not the group itself.
  Group(Backend host, std::function<Backend()> make_device, Lookout& others, UnderWay& under_way);
  /// Aborts what is still under way on the device. Does not wait for exchanges in CPU memory: a rank that has
  /// to take part in them may have failed.
  ~Group() override;

  int rank() const override { return host_->getRank(); }
  int size() const override { return host_->getSize(); }

  std::unique_ptr<Exchange> all_reduce(const at::Tensor& tensor) override;
  std::unique_ptr<Exchange> all_gather(const at::Tensor& all, const at::Tensor& own) override;
  std::unique_ptr<Exchange> reduce_scatter(const at::Tensor& own, const at::Tensor& all) override;
  std::unique_ptr<Exchange> broadcast(const at::Tensor& tensor, int root) override;

 private:
  template <class Begin>
  std::unique_ptr<Exchange> begin(const at::Tensor& tensor, Begin&& begin);

  Backend host_, device_;             ///< device_: null until it is needed
  std::deque<UnderWay::Work> begun_;  ///< in CPU memory, and not seen to be complete
  std::function<Backend()> make_device_;
  Lookout& others_;
  UnderWay& under_way_;
};

}  // namespace trainyard::distributed
